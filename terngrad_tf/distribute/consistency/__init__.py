"""Compares or equalizes the options, calls, data and weights that all processes must share.

All processes refuse a difference, or take the chief's value:

    handshake       code and options of strategies, gradients of models: refused
    seeds           random seeds: the chief's, unless the program sets them
    calls           arguments of `fit` and so on (`settings`): refused; weights: see `equalize`
    equalize        variables, by hashes: the chief's (`broadcast`), with a warning
    written_files   callbacks that write to one file: only the chief's write
    feeding         data: shared, or each process's own; refused if neither
"""

__all__ = []
