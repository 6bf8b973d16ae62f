#!/usr/bin/env bash
# Makes the nsys inside Nsight Compute usable where it can record but not write reports, and prints its path.
# Usage: setup_nsys.sh FOLDER    FOLDER holds the packages libdw1 and libelf1 (and, if the machine lacks them, liblzma5
# and libbz2-1.0) as .deb files.
#
# Two things are missing there: the importer's libraries, and the folder name under which nsys looks for the importer.
set -euo pipefail

debs=${1:?usage: setup_nsys.sh FOLDER_OF_DEBS}
libraries=/opt/tracelab-nsys-libs

nsys=$(find /opt/nvidia -path '*/host/target-linux-x64/nsys' 2>/dev/null | sort -V | tail -1)
[[ -n $nsys ]] || { echo "setup_nsys: no nsys inside Nsight Compute under /opt/nvidia" >&2; exit 5; }
host=${nsys%/target-linux-x64/nsys}

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
for deb in "$debs"/*.deb; do dpkg -x "$deb" "$unpacked"; done

mkdir -p "$libraries"
copy() { find "$unpacked" \( -name "$1.so*" -o -name "$1-*.so*" \) -exec cp -a {} "$libraries/" \;; }
copy libdw
copy libelf
for name in liblzma libbz2; do # never beside the machine's own: other programs load that one
    ldconfig -p | grep -q "$name\.so" || copy "$name"
done
echo "$libraries" >/etc/ld.so.conf.d/tracelab-nsys.conf
ldconfig

importer=$(find "$host" -maxdepth 1 -type d -name 'linux-desktop-*-x64' | sort -V | tail -1)
[[ -n $importer ]] || { echo "setup_nsys: no linux-desktop-*-x64 folder in $host" >&2; exit 5; }
[[ -e $host/host-linux-x64 ]] || ln -s "$(basename "$importer")" "$host/host-linux-x64"
echo "$nsys"
