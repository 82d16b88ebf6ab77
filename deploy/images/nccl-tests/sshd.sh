#!/bin/sh
# sshd with a host key made in this container: `sshd` by its full name needs one, and an image must not bring it.
set -eu
if [ "$(id -u)" = 0 ]; then
    ssh-keygen -A >/dev/null
else
    install -d -m 0700 /tmp/fabric-health-sshd
    [ -f /tmp/fabric-health-sshd/host_ed25519 ] ||
        ssh-keygen -q -t ed25519 -N '' -f /tmp/fabric-health-sshd/host_ed25519
fi
exec /usr/sbin/sshd.openssh "$@"
