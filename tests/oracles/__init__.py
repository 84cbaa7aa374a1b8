"""What a valid line of each task is, written from the definitions alone.

Nothing here imports the package under test, and speed does not matter. Every
``judge`` takes a line in the text format (tokens separated by white space, no
end-of-sequence token) and returns None when it is valid, else the reason.
"""
