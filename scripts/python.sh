# What the scripts beside this file need of Python: sourced, from the top of the clone.

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0

say() {
  printf 'ltzd: %s\n' "$1" >&2
}

# is_recent PYTHON [END]: whether it is 3.11 or newer, and older than 3.END.
is_recent() {
  "$1" -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, ${2:-99}))" 2>/dev/null
}

# The path of a Python that is new enough: PYTHON, or the first one on PATH. From 3.14 on some packages
# have no wheels and need a C compiler, so those come last. Of an activated environment it is the Python
# underneath: the environment may be .venv, which is about to be made anew.
find_python() {
  for end in 14 99; do
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
      if command -v "$name" >/dev/null 2>&1 && is_recent "$name" "$end"; then
        "$name" -c 'import sys; print(getattr(sys, "_base_executable", None) or sys.executable)'
        return
      fi
    done
  done
  if [ -n "${PYTHON:-}" ]; then
    say "PYTHON is $PYTHON, which is no Python 3.11 or newer."
  else
    say "Python 3.11 or newer is needed, and none is on PATH."
    say "Install it (Debian and Ubuntu: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3.12 …"
  fi
  return 1
}

# pip of $python, or of a small environment made for it where it has none.
pip() {
  if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip "$@"
    return
  fi
  if ! [ -x .tools/pip/bin/pip ] && ! "$python" -m venv .tools/pip >/dev/null 2>&1; then
    rm -rf .tools/pip
    say "$python has neither pip nor a working venv module: install them (Debian and Ubuntu: apt-get install python3-venv)."
    return 1
  fi
  .tools/pip/bin/python -m pip "$@"
}

# pinned LOCK PACKAGE: installs a lock of one package by itself and sets $tool to its directory.
pinned() {
  version=$(sed -n "s/^$2==\([^ ;]*\).*/\1/p" "$1")
  tool=.tools/$2-$version
  if ! [ -d "$tool" ]; then
    mkdir -p .tools
    fresh=$(mktemp -d ".tools/$2.XXXXXX")
    if ! pip install --quiet --no-deps --require-hashes --requirement "$1" --target "$fresh"; then
      rm -rf "$fresh"
      return 1
    fi
    chmod 755 "$fresh"
    mv "$fresh" "$tool"
  fi
}

# The index that pip is set up for, if it is not the usual one.
index_of_pip() {
  pip config list 2>/dev/null |
    sed -n "s/^\(global\|install\|:env:\)\.index-url='\(.*\)'\$/\2/p" | tail -n 1
}

# environment_by_uv DIRECTORY LOCK, and sets $uv.
environment_by_uv() {
  pinned requirements-uv.lock uv || return 1
  uv=$tool/bin/uv
  index=$(index_of_pip)
  [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
  export UV_HTTP_TIMEOUT=20 UV_HTTP_RETRIES=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
  "$uv" venv --quiet --python "$python" "$1" &&
    "$uv" pip install --quiet --system-certs --no-deps --require-hashes \
      --python "$1/bin/python" --requirement "$2"
}

environment_by_pip() {
  "$python" -m venv "$1" &&
    "$1/bin/python" -m pip install --quiet --no-deps --require-hashes --requirement "$2"
}

# new_environment DIRECTORY LOCK: a virtual environment of $python that holds what the lock says.
new_environment() {
  rm -rf "$1"
  environment_by_uv "$1" "$2" && return
  say "uv did not manage; pip does the same, and takes a minute."
  rm -rf "$1"
  environment_by_pip "$1" "$2" && return
  say "What belongs into $1 could not be installed; the lines above say why."
  say "If the venv module is missing: apt-get install python3-venv (Debian and Ubuntu). Then try again."
  return 1
}

# Waits until no other script works in .tools: two at once would delete each other's work.
take_turn() {
  mkdir -p .tools
  if command -v flock >/dev/null 2>&1; then
    exec 9>.tools/lock
    flock 9
  fi
}
