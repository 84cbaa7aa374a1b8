from commands import command

__all__ = ["command"]
