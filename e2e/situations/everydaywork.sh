# Source it with WHO=user or WHO=root, then call everyday_work or everyday_tools: they do in a project what people type there.
# None of it may be refused, and what it makes must be there.
set -u
here=$(dirname "$(readlink -f "$0")")
# A home as homes are: not in /tmp, where all that is new may stay.
[ -d /srv ] && TMPDIR=/srv
if [ "$WHO" = user ]; then
    . "$here/ordinaryuser.sh"
    as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" HOME="$U/home" USER=nobody GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" "$@"; }
    as gleaner stop >/dev/null 2>&1
else
    [ "$(id -u)" = 0 ] && [ -n "${TOKEN:-}" ] || { echo "needs root, and a client token in TOKEN"; exit 77; }
    T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
    U=$T/user; mkdir -m 755 "$U"; mkdir -m 700 "$U"/{home,run,config,state}
    as_user() { env -i PATH="$PATH" HOME="$U/home" USER=root GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" "$@"; }
    as_user gleaner use "$TOKEN" >/dev/null 2>&1
fi
as() { as_user "$@"; }
echo 'prefer = "there"' >> "$U/config/client.toml"
trap 'as gleaner stop >/dev/null 2>&1; sleep 0.5; mountpoint -q "$T/rust" && umount -l "$T/rust"; cd /; rm -rf --one-file-system "$T"' EXIT
as remrun --no-local true || { echo "no pool"; exit 77; }
# Tools in root's home are shown where any user can read them, or called without the wrappers that look for them in their user's home.
rust=$(ls -d "$(getent passwd 0 | cut -d: -f6)"/.rustup/toolchains/*/bin/cargo 2>/dev/null | head -n 1); rust=${rust%/bin/cargo}
[ -z "$rust" ] || { mkdir "$T/rust" && mount --bind "$rust" "$T/rust" && PATH=$T/rust/bin:$PATH; }
[ "$WHO" = user ] || { python=$(python3 -c 'import os, sys; print(os.path.dirname(os.path.realpath(sys.executable)))' 2>/dev/null) && PATH=$python:$PATH; }
bad=0
# did WHAT-IT-MAKES CMD...: runs it on the pool, with the variables of WITH, and shows where it was.
did() {
    local made=$1 said rc; shift
    said=$(as ${WITH:-} timeout 120 remrun "$@" 2>&1 </dev/null); rc=$?
    echo "$1 ${2-}: $(as gleaner explain | sed -n 's/^ran *//p; s/^because *//p' | tr '\n' ' ')"
    case $said in *'nothing committed'*) echo "refused: $*: $said"; bad=1; return;; esac
    [ $rc = 0 ] || { echo "status $rc: $*: $said"; bad=1; return; }
    [ -e "$made" ] || { echo "not there: $made: $*: $said"; bad=1; }
}
# A command that can run on the pool must have run there.
there() {
    did "$@"
    as gleaner explain | grep -q '^ran *remote' || { echo "not on the pool: ${*:2}: $(as gleaner explain | grep '^because')"; bad=1; }
}
everyday_work() {
    local h=$U/home
    # In the home, which is not in /tmp: there all that is new may stay.
    as mkdir -p "$h/Videos" "$h/work/src"; cd "$h/work"
    as sh -c 'printf "int main(void){return 0;}\n" > src/a.c; printf "all: a b\na: src/a.c\n\tgcc -o a src/a.c\nb: a\n\tcp a b\nclean:\n\trm -f a b\n" > Makefile; echo movie > in.mp4'
    if [ -n "$(type -P make)" ] && [ -n "$(type -P gcc)" ]; then
        there b make
        there b make clean all
        there "$h/Videos/x" gcc -o "$h/Videos/x" src/a.c
        there a gcc -save-temps -o a src/a.c
        there "$h/Videos/z" sh -c 'gcc -o ~/Videos/z src/a.c && gcc -c -o "$HOME/Videos/z.o" src/a.c'
        as mkdir "$h/tmp"; WITH="TMPDIR=$h/tmp" there a make -B a
    fi
    there "$h/Videos/x.mp4" cp in.mp4 "$h/Videos/x.mp4"
    [ -n "$(type -P ffmpeg)" ] && there "$h/Videos/y.mp4" ffmpeg -y -f lavfi -i testsrc=duration=1:size=64x64 -c:v mpeg4 "$h/Videos/y.mp4"
    # What is left in /tmp is there as well, and what was there before is changed.
    local left; left=$(as mktemp -u /tmp/gleaner-left.XXXXXX)
    there "$left" sh -c "echo x > $left; mkdir $left.d; echo y > $left.d/y"
    there "$left" sh -c "echo more >> $left; rm -r $left.d; mktemp /var/tmp/gleaner-left.XXXXXX > name"
    [ "$(tail -n 1 "$left")" = more ] && [ ! -e "$left.d" ] && [ -e "$(cat name)" ] || { echo "/tmp is not as it was left"; bad=1; }
    rm -rf "$left" "$left.d" "$(cat name)"
    there sorted sh -c 'seq 300000 | sort -R -S 1M -T /tmp > sorted'
    if [ -n "$(type -P git)" ]; then
        as git config --global user.name a; as git config --global user.email a@b; as git config --global init.defaultBranch main
        did .git/HEAD git init -q .
        there .git/index git add src Makefile
        there .git/COMMIT_EDITMSG git commit -q -m first
        did .git/refs/heads/topic git checkout -q -b topic
        as sh -c 'echo "/* 2 */" >> src/a.c'
        there .git/COMMIT_EDITMSG git commit -qam second
        did .git/HEAD git checkout -q main
        did .git/HEAD git merge -q topic
        # What the index says of the files is what they are.
        as git diff-files --quiet || { echo "git takes files for changed: $(as git diff-files)"; bad=1; }
        there .git/HEAD git stash list
        there .git/HEAD git gc -q
    fi
    if [ -n "$(type -P ccache)" ]; then
        did c.o ccache gcc -c -o c.o src/a.c
        did d.o sh -c 'ccache gcc -c -o d.o src/a.c'
        WITH="CCACHE_DIR=$h/other/ccache" did e.o sh -c 'ccache gcc -c -o e.o src/a.c'
    fi
    # A program's own cache is dropped, and says so.
    there kept sh -c 'mkdir -p ~/.cache/x ~/.config/go/telemetry; echo 1 > ~/.cache/x/y; echo 1 > ~/.config/go/telemetry/z; echo 1 > kept'
    as gleaner explain | grep -q '\.cache/x/y is a cache or history' || { echo "explain does not show why: $(as gleaner explain)"; bad=1; }
    [ ! -e "$h/.cache/x" ] && [ ! -e "$h/.config/go" ] || { echo "a cache was kept"; bad=1; }
}
# The tools of languages, each in a folder of the project.
everyday_tools() {
    local python
    as mkdir -p "$U/home/work"; cd "$U/home/work"
    cargo_build
    python=$(as sh -c 'command -v python3')
    if [ -n "$python" ] && as python3 -c 'import venv, ensurepip' 2>/dev/null; then python_work; fi
    if as npm --version >/dev/null 2>&1; then
        as sh -c 'mkdir npm; cd npm; printf "{\"name\":\"x\",\"version\":\"1.0.0\",\"scripts\":{\"build\":\"node build.js\"}}\n" > package.json; echo "require(\"fs\").writeFileSync(\"dist.js\", \"built\")" > build.js'
        cd npm; did dist.js npm run build; cd ..
    fi
}
# A small crate without dependencies, by a toolchain that the user may read.
cargo_build() {
    as cargo --version >/dev/null 2>&1 || { echo "skipped: cargo, which this user has not"; return; }
    as sh -c 'mkdir -p crate/src; printf "[package]\nname=\"x\"\nversion=\"0.1.0\"\nedition=\"2021\"\n[workspace]\n" > crate/Cargo.toml; echo "fn main(){}" > crate/src/main.rs'
    cd crate; there target/debug/x cargo build -q; there target/debug/x cargo test -q
    WITH="CARGO_TARGET_DIR=$U/home/built" there "$U/home/built/debug/x" cargo build -q; cd ..
    # A workspace that is not under version control, from within a member.
    as sh -c 'mkdir -p ~/ws/m/src; printf "[workspace]\nmembers=[\"m\"]\nresolver=\"2\"\n" > ~/ws/Cargo.toml; sed "/workspace/d; s/x/m/" crate/Cargo.toml > ~/ws/m/Cargo.toml; echo "fn main(){}" > ~/ws/m/src/main.rs'
    cd "$U/home/ws/m"; there ../target/debug/m cargo build -q; cd "$U/home/work"
}
# A virtual environment, a package that is used where it is written, and a build that runs in it.
python_work() {
    did env/bin/pip python3 -m venv env
    as sh -c 'mkdir -p pkg/mine; echo "value = 41" > pkg/mine/__init__.py; printf "[project]\nname=\"mine\"\nversion=\"1\"\n[build-system]\nrequires=[]\nbuild-backend=\"backend\"\nbackend-path=[\".\"]\n" > pkg/pyproject.toml'
    as sh -c 'cat > pkg/backend.py' <<'PYTHON'
import os, zipfile
def wheel(directory):
    name = "mine-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        archive.writestr("mine.pth", os.path.dirname(os.path.abspath(__file__)) + "\n")
        archive.writestr("mine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        archive.writestr("mine-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("mine-1.dist-info/RECORD", "")
    return name
def build_wheel(directory, settings=None, metadata=None): return wheel(directory)
def build_editable(directory, settings=None, metadata=None): return wheel(directory)
PYTHON
    as() { as_user PATH="$U/home/work/env/bin:$PATH" VIRTUAL_ENV="$U/home/work/env" PIP_DISABLE_PIP_VERSION_CHECK=1 "$@"; }
    cd pkg
    there "$(echo ../env/lib/python3*/site-packages)/mine.pth" pip install -q --no-index -e .
    did "$(echo ../env/lib/python3*/site-packages)/mine.pth" pip install -q -e .
    cd ..
    there answer python -c 'import mine; open("answer", "w").write(str(mine.value + 1))'
    there pkg/mine/__pycache__ python -m compileall -q pkg
    as() { as_user "$@"; }
}
