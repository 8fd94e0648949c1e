package machine

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"croft"
)

// A File is what Upload writes.
type File struct {
	Path   string // absolute; its directory exists
	Mode   uint32 // permission bits
	Size   int64  // bytes
	SHA256 []byte
}

// uploading writes standard input beside the file and, when length and digest are right, in its place. Arguments: path,
// size, digest, mode.
const uploading = `set -u
fail() { echo "$*" >&2; exit 1; }
[ ! -d "$1" ] || fail "$1 is a directory"
command -v sha256sum >/dev/null || fail "sha256sum is not there"
umask 077
new=$1.new.$$
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$new" || fail "cannot write $new"
got=$(($(wc -c <"$new")))
[ "$got" = "$2" ] || fail "$got of $2 bytes arrived"
sum=$(sha256sum <"$new")
[ "${sum%% *}" = "$3" ] || fail "other bytes arrived: sha256 ${sum%% *}, not $3"
chmod "$4" "$new" && { sync "$new" 2>/dev/null || sync; } && mv "$new" "$1" || fail "cannot replace $1"
trap - EXIT`

// Upload writes a file whose content in reads. The file is replaced as a whole, or stays as it was; only a machine that
// is lost in between may keep a part of it, beside it under another name. Errors: Invalid if the path is relative, an
// Exit if the machine refuses, else as Start's and Wait's.
func Upload(ctx context.Context, m Machine, f File, in io.Reader) error {
	if !strings.HasPrefix(f.Path, "/") || strings.HasSuffix(f.Path, "/") {
		return croft.Errorf(croft.Invalid, "write %q: give an absolute path of a file", f.Path)
	}
	_, err := Output(ctx, m, in, "sh", "-c", uploading, "sh", f.Path, strconv.FormatInt(f.Size, 10),
		hex.EncodeToString(f.SHA256), fmt.Sprintf("%04o", f.Mode&0o7777))
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Path, err)
	}
	return nil
}
