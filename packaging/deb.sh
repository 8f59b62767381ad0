#!/bin/sh
# Makes a Debian package of a built esker: packaging/deb.sh target/release/esker [DIRECTORY]. Needs dpkg-deb; packaging/build calls it.
# It holds the command, esker-ssd if that lies beside the command, manual pages and completions, the unit for systemd, settings in
# /etc/esker, and licences: NOTICES is a file with those of the linked packages. COMPRESSION may be xz (the default), gzip or none;
# BUILD makes a later package of the same version.
set -eu

binary=$1
out=${2:-.}
here=$(dirname "$(readlink -f "$0")")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 0755 "$tree"
umask 022

version=$("$binary" --version | cut -d' ' -f2)${BUILD:++build$BUILD}
architecture=$(dpkg --print-architecture)
depends=adduser
if ! ldd "$binary" 2>&1 | grep -q -e 'statically linked' -e 'not a dynamic'; then
    depends="$depends, libc6 (>= 2.34)"
fi
share=$tree/usr/share
mkdir -p "$tree/DEBIAN" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/vendor-completions" \
    "$share/fish/vendor_completions.d" "$share/doc/esker"

install -D -m 0755 "$binary" "$tree/usr/bin/esker"
ssd=$(dirname "$binary")/esker-ssd
if [ -x "$ssd" ]; then install -m 0755 "$ssd" "$tree/usr/bin/esker-ssd"; fi
install -D -m 0644 "$here/esker.service" "$tree/lib/systemd/system/esker.service"
"$binary" man "$share/man/man1"
gzip -9n "$share"/man/man1/*.1
"$binary" completions bash > "$share/bash-completion/completions/esker"
"$binary" completions zsh > "$share/zsh/vendor-completions/_esker"
"$binary" completions fish > "$share/fish/vendor_completions.d/esker.fish"
{
    printf 'Esker is licensed under MIT or Apache-2.0, at your choice.\n\n'
    cat "$here/../LICENSE-MIT"
    printf '\n'
    cat "$here/../LICENSE-APACHE"
} > "$share/doc/esker/copyright"
if [ -n "${NOTICES:-}" ]; then
    gzip -9n < "$NOTICES" > "$share/doc/esker/THIRD-PARTY.gz"
fi
install -m 0644 "$here/alerts.yml" "$here/grafana.json" "$here/../CHANGELOG.md" "$share/doc/esker/"
# The service keeps its store where the unit lets it write.
"$binary" serve --print-config | sed 's|^# dir = "PATH"$|dir = "/var/lib/esker/store"|' > "$tree/esker.toml"
grep -q '^dir = ' "$tree/esker.toml"
install -D -m 0640 "$tree/esker.toml" "$tree/etc/esker/esker.toml"
rm "$tree/esker.toml"
echo /etc/esker/esker.toml > "$tree/DEBIAN/conffiles"

cat > "$tree/DEBIAN/control" <<END
Package: esker
Version: $version
Architecture: $architecture
Maintainer: Esker maintainers <root@localhost>
Depends: $depends
Section: database
Priority: optional
Description: key-value store for QLC flash drives, served over the Redis protocol and gRPC
 Keys and values are stored on flash drives in an append-only log and survive a crash. An index in memory takes 9 to
 12.5 bytes per key.
END

# The package starts nothing: whoever installs it says where the data go, and when.
cat > "$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    adduser --system --group --quiet --home /var/lib/esker --no-create-home esker
    chown root:esker /etc/esker/esker.toml
    # The unit makes it too; whoever starts the server without systemd needs it as well.
    install -d -o esker -g esker -m 0700 /var/lib/esker
    chown esker:esker /etc/esker
    chmod 0750 /etc/esker
    if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
fi
END
cat > "$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop esker || true; fi
END
# What clients stored is never removed, not even by a purge.
cat > "$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = purge ]; then
    rm -f /etc/systemd/system/multi-user.target.wants/esker.service
    rmdir --ignore-fail-on-non-empty /etc/esker 2> /dev/null || true
    if [ -d /var/lib/esker ]; then echo "esker: the store stays in /var/lib/esker; remove it if nobody needs it"; fi
fi
END
chmod 0755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"
dpkg-deb -Z"${COMPRESSION:-xz}" --root-owner-group --build "$tree" "$out/esker_${version}_$architecture.deb"
