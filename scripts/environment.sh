# Sourced by the other scripts: creates the virtual environment that they need on the first call, with messages.
#
#   prepare requirements.txt        sets $python to an interpreter with everything in that file
set -euo pipefail
unset CDPATH # with it, cd prints where it goes

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "Phasewise needs Python 3.11 or newer with venv. Install it, or set PYTHON: PYTHON=/path/to/python3 $0" >&2
  exit 1
}

prepare() {
  local requirements=$1 venv=$root/.venv stamp wanted base
  stamp=$venv/.installed-$requirements
  wanted=$(cat requirements*.txt | cksum)
  python=$venv/bin/python
  if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ] && "$python" -c 'import pip' 2>/dev/null; then # fails after an upgrade of Python
    return
  fi
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "Creating a virtual environment in .venv" >&2
    base=$(find_python)
    "$base" -m venv --clear "$venv"
  fi
  echo "Installing $requirements into .venv (once; a minute or two)" >&2
  # pip would compile on one core, including the tests of packages.
  "$python" -m pip install --quiet --no-compile --disable-pip-version-check --constraint requirements-lock.txt -r "$requirements"
  "$python" -m compileall -qq -j 0 -x '/tests/|/kubernetes/aio/' "$venv/lib" || true # files that cannot be compiled are not imported
  echo "$wanted" >"$stamp"
}
