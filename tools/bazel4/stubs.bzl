"""Local stand-ins for the repositories that Bazel 4 would otherwise download.

Debian and Ubuntu ship Bazel 4 (bazel-bootstrap). Its built-in rules name a few external
repositories; for Python targets none of their contents matter, so that small stand-ins written
here let everything build without network. Bazel 7 and newer read MODULE.bazel instead.
"""

_CC_RULES = ["cc_binary", "cc_import", "cc_library", "cc_test", "cc_toolchain", "cc_toolchain_suite"]
_JAVA_RULES = ["java_binary", "java_import", "java_library", "java_runtime", "java_toolchain"]
_PY_RULES = ["py_binary", "py_library", "py_test"]

def _forward(rules):
    """Returns the text of a .bzl file whose macros call the native rules of the same names."""
    return "".join([
        "def {rule}(**kwargs):\n    native.{rule}(**kwargs)\n\n".format(rule = rule)
        for rule in rules
    ])

def _files_impl(repository_ctx):
    repository_ctx.file("WORKSPACE", "")
    for path, text in repository_ctx.attr.files.items():
        repository_ctx.file(path, text)

_files = repository_rule(
    implementation = _files_impl,
    attrs = {"files": attr.string_dict()},
    doc = "A repository that consists of the given files.",
)

_LOCAL_PYTHON_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "python3",
    interpreter_path = "{interpreter}",
    python_version = "PY3",
    # Debian has no `python`, which the default first line names.
    stub_shebang = "#!/usr/bin/env python3",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":python3",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _find_python(repository_ctx):
    """The interpreter that PYTHON3 names, else that of scripts/venv.sh, else python3 on PATH."""
    name = repository_ctx.os.environ.get("PYTHON3", "")
    if not name:
        # So that `bazel build` and scripts/bazel.sh make the same of a target.
        checkout = str(repository_ctx.path(Label("//:WORKSPACE")).dirname)
        venv = repository_ctx.os.environ.get("TERNGRAD_VENV", "") or checkout + "/.venv"
        own = repository_ctx.path(venv + "/bin/python")
        if own.exists:
            return str(own)
        name = "python3"
    interpreter = name if name.startswith("/") else repository_ctx.which(name)
    if not interpreter:
        fail("`PYTHON3` must name a Python interpreter. Received: PYTHON3=" + name)
    return str(interpreter)

def _local_python_impl(repository_ctx):
    interpreter = _find_python(repository_ctx)
    look = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
    if repository_ctx.execute([interpreter, "-c", look, "absl", "tensorflow"]).return_code:
        # Told here, as programs that were built would end in a traceback.
        fail(("{} lacks the packages that the programs need. Run `bash scripts/build_all.sh` " +
              "once, which makes .venv with them, or let PYTHON3 name an interpreter that has " +
              "them").format(interpreter))
    repository_ctx.file("WORKSPACE", "")
    repository_ctx.file("BUILD", _LOCAL_PYTHON_BUILD.format(interpreter = interpreter))

_local_python = repository_rule(
    implementation = _local_python_impl,
    environ = ["PATH", "PYTHON3", "TERNGRAD_VENV"],
    local = True,
    doc = "The interpreter named by PYTHON3, else .venv's or python3 on PATH, as a Python toolchain.",
)

def offline_stubs(pip):
    """Declares the stand-ins.

    Args:
      pip: names of the `@pypi//<name>` targets to offer. Each is empty: on Bazel 4 the packages
        come from the environment of the interpreter: PYTHON3, or .venv of scripts/bazel.sh.
    """
    public = 'package(default_visibility = ["//visibility:public"])\n'
    _files(
        name = "rules_cc",
        files = {"BUILD": "", "cc/BUILD": "", "cc/defs.bzl": _forward(_CC_RULES)},
    )
    _files(
        name = "rules_java",
        files = {"BUILD": "", "java/BUILD": "", "java/defs.bzl": _forward(_JAVA_RULES)},
    )
    _files(
        name = "rules_python",
        files = {"BUILD": "", "python/BUILD": "", "python/defs.bzl": _forward(_PY_RULES)},
    )
    _files(
        name = "remote_coverage_tools",
        files = {"BUILD": public + "".join([
            'filegroup(name = "{}")\n'.format(name)
            for name in ["coverage_report_generator", "lcov_merger"]
        ])},
    )
    files = {"BUILD": ""}
    for name in pip:
        files[name + "/BUILD"] = public + 'py_library(name = "{}")\n'.format(name)
    _files(name = "pypi", files = files)
    _local_python(name = "local_python")
