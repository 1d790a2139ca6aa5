# shellcheck shell=bash
# Component mcp: the official Python client of the Model Context Protocol, in an environment of its own that is kept
# between runs.

# As they were when the tests were written; a newer client is a change of the tests.
readonly MCP_PACKAGES=(mcp==2.3.0 jsonschema==4.26.0)

mcp_up() {
    need_python || return 1
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/farshell-test name dir
    name=$(IFS=-; printf 'python-%s-%s' "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" "${MCP_PACKAGES[*]//==/-}") || return 1
    dir=$cache/$name
    if ! "$dir/bin/python" -c 'import mcp, jsonschema' 2>/dev/null; then
        say "making $dir"
        # One that was interrupted lacks what is looked for above, and is made anew.
        rm -rf "$dir" && mkdir -p "$cache" || return 1
        if ! python3 -m venv "$dir" >"$RUN/logs/mcp.log" 2>&1 ||
            ! "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "${MCP_PACKAGES[@]}" >>"$RUN/logs/mcp.log" 2>&1; then
            tail -n 20 "$RUN/logs/mcp.log" >&2
            rm -rf "$dir"
            skip_part "could not be installed from PyPI: ${MCP_PACKAGES[*]}"
            return 1
        fi
    fi
    export FARSHELL_TEST_MCP=$dir/bin/python
}

# Nothing runs, and the environment is kept.
mcp_down() {
    :
}
