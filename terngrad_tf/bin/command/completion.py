"""Completes commands and options of `terngrad` in a shell.

Example, for this and every later bash:
    echo 'eval "$(terngrad completion bash)"' >> ~/.bashrc
"""

import argparse
from collections.abc import Sequence

from terngrad_tf.bin.command.commands import ALL, find
from terngrad_tf.bin.command.options import options_of
from terngrad_tf.bin.command.parsing import make_parser

PROGRAM = "terngrad completion"
_DESCRIPTION = """\
Prints a script that lets a shell complete commands and options of terngrad.

  eval "$(terngrad completion bash)"      a line of ~/.bashrc
  eval "$(terngrad completion zsh)"       a line of ~/.zshrc, after compinit
  terngrad completion fish | source       a line of ~/.config/fish/config.fish
"""
_SCRIPTS = {
    "bash": """\
_terngrad() {
  local IFS=$'\\n'
  COMPREPLY=($(terngrad completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _terngrad terngrad
""",
    "zsh": """\
_terngrad() {
  local -a found
  found=(${(f)"$(terngrad completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -- $found; else _files; fi
}
compdef _terngrad terngrad
""",
    "fish": """\
function __terngrad_words
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    terngrad completion words $before[2..] "$current" 2>/dev/null
end
complete -c terngrad -a '(__terngrad_words)'
""",
}


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    usage = f"terngrad completion ({' | '.join(_SCRIPTS)})"
    result = make_parser(PROGRAM, _DESCRIPTION, usage=usage)
    result.add_argument("shell", choices=_SCRIPTS, help=argparse.SUPPRESS)
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command with the words after its name; returns the exit status."""
    if arguments[:1] == ["words"]:  # called by the scripts; any word may follow
        print("\n".join(complete(arguments[1:])))
    else:
        print(_SCRIPTS[parser().parse_args(arguments).shell], end="")
    return 0


def complete(typed: Sequence[str]) -> list[str]:
    """Returns completions of the last, unfinished word of a command line; none if files may follow.

    Example:
        >>> complete(["mnist_train", "--grad"])
        ['--grad_bits']
    """
    *before, last = typed or [""]
    if before[:1] == ["--config"]:
        before = before[2:] if len(before) > 1 else []
    if before[:1] == ["config"] and len(before) > 1:
        before = before[1:]
    if not before or before == ["config"]:
        names = dict.fromkeys(name.split()[0] for name in ALL)
        return [name for name in names if name.startswith(last)]
    name, rest = find(before)
    if name == "run" and any(not word.startswith("-") and word.endswith(".py") for word in rest):
        return []  # options of the script
    found = [name for name in ALL if name.startswith(f"{before[0]} ")] if not rest else []
    words = [word.split()[1] for word in found]
    if last.startswith("-") and name in ALL:
        options = options_of(name).values()
        words += [f"--{option.name}" for option in options]
        if last.startswith("--no"):
            words += [f"--no{option.name}" for option in options if option.can_be_off]
    return [word for word in words if word.startswith(last)]
