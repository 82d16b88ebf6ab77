#!/usr/bin/env bash
# Obtains what the Kubernetes tests need: etcd and kube-apiserver, in $KUBEBUILDER_ASSETS (default
# ~/.cache/fabric-health/kubebuilder). A folder that holds both already, such as one of setup-envtest, is left as it is.
#
# On Debian and its kin etcd, the Go compiler and the sources come from the distribution's signed archive through apt;
# packages are unpacked below a temporary folder, nothing is installed and no root is needed. The API server takes about
# four minutes of two cores; the result (80 MB) is kept. A second call waits for the first.
set -euo pipefail

assets=${KUBEBUILDER_ASSETS:-$HOME/.cache/fabric-health/kubebuilder}
there() {
  [[ -x $assets/etcd && -x $assets/kube-apiserver ]] && echo "kubernetes assets are in $assets"
}
if there; then exit 0; fi
for tool in apt-get dpkg-deb make tar jq gcc flock; do
  command -v "$tool" >/dev/null || {
    echo "error: $tool is missing; on systems without apt put etcd and kube-apiserver (setup-envtest use -p path)" \
      "in a folder and export KUBEBUILDER_ASSETS" >&2
    exit 1
  }
done

mkdir -p "$assets"
exec 9>"$assets/.lock"
flock 9
if there; then exit 0; fi
chmod -R u+w "$assets"/build.* 2>/dev/null || true
rm -rf "$assets"/build.*  # what one that was killed left
work=$(mktemp -d "$assets/build.XXXXXX")
trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }

# An apt of our own: its lists and cache are below $work, its sources are the system's, with source packages added.
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work"/{debs,root,source,home}
repository=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | grep -v -e security -e updates | head -n 1)
read -r uri release <<<"${repository:?no Debian archive is configured in apt}"
{
  echo "deb $uri $release main"
  echo "deb-src $uri $release main"
} >"$work/apt/sources.list"
options=(-q -o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=)
say "reading the package lists of $uri $release"
apt-get "${options[@]}" update >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log" >&2; exit 1; }

if [[ ! -x $assets/etcd ]]; then
  say "fetching etcd"
  (cd "$work/debs" && apt-get "${options[@]}" download etcd-server >>"$work/apt.log" 2>&1)
  dpkg-deb -x "$work"/debs/etcd-server_*.deb "$work/root"
  install -m 0755 "$work/root/usr/bin/etcd" "$assets/etcd.new"
  mv "$assets/etcd.new" "$assets/etcd"
fi

go_version=$(apt-cache "${options[@]}" depends golang-go | sed -n 's/^ *Depends: golang-\([0-9.]*\)-go$/\1/p' | head -n 1)
say "fetching Go $go_version and the sources of Kubernetes"
(cd "$work/debs" && apt-get "${options[@]}" download \
  "golang-$go_version-go" "golang-$go_version-src" golang-github-modern-go-reflect2-dev rsync libpopt0 libxxhash0 >>"$work/apt.log" 2>&1)
for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
(cd "$work/source" && apt-get "${options[@]}" source --download-only kubernetes >>"$work/apt.log" 2>&1)
tar -xzf "$work"/source/kubernetes_*.orig.tar.gz -C "$work/source"
cd "$work"/source/kubernetes-*/
version=${PWD##*/kubernetes-}

# The vendored reflect2 crashes when built with Go 1.18 or newer; Debian packages the release that does not.
rm -rf vendor/github.com/modern-go/reflect2/*
cp "$work"/root/usr/share/gocode/src/github.com/modern-go/reflect2/*.[gs]* vendor/github.com/modern-go/reflect2/
rm -f vendor/github.com/modern-go/reflect2/*_test.go
mkdir -p .go/src/k8s.io
ln -sfn ../../.. .go/src/k8s.io/kubernetes
library=$(dirname "$(find "$work/root/usr/lib" -name 'libpopt.so.0' | head -n 1)")
export GOROOT=$work/root/usr/lib/go-$go_version GOPATH=$PWD/.go GOCACHE=$work/gocache HOME=$work/home CGO_ENABLED=0
export GOFLAGS= GOTOOLCHAIN=local GOPROXY=off
export PATH=$GOROOT/bin:$work/root/usr/bin:$PATH LD_LIBRARY_PATH=$library

say "generating code of Kubernetes $version"
make generated_files >"$work/generate.log" 2>&1 || { tail -n 30 "$work/generate.log" >&2; exit 1; }
say "building kube-apiserver $version"
export GO111MODULE=off
cd "$GOPATH/src/k8s.io/kubernetes"
stamp=k8s.io/kubernetes/vendor/k8s.io/component-base/version
IFS=. read -r major minor _ <<<"$version"
# Without the clients of cloud providers, which are almost half of its source and do nothing here.
go build -tags providerless -p "$(nproc)" -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor" \
  -o "$assets/kube-apiserver.new" ./cmd/kube-apiserver
"$assets/kube-apiserver.new" --version
mv "$assets/kube-apiserver.new" "$assets/kube-apiserver"
say "done: $assets"
