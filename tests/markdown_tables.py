"""Tables of the documentation, read back for the tests that hold them to the results."""


def rows_below(text, heading):
    """The cells of the first Markdown table after ``heading``, its header left out."""
    lines = text.split(heading, 1)[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found
