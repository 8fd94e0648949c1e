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

// A File describes a file for Upload to write.
type File struct {
	Path   string // an absolute path in an existing directory
	Mode   uint32 // permission bits
	Size   int64  // bytes
	SHA256 []byte
}

// uploading writes standard input to a temporary file in the file's directory, verifies its size and digest, and
// renames it to the file. Arguments: path, size, digest, mode.
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

// Upload writes a file with the content of in. The file is replaced atomically or stays unchanged; if the machine is
// lost during the upload, a partial temporary file may remain in the same directory. Errors: Invalid if the path is
// relative or ends in a slash, an Exit if the machine refuses, else the errors of Start and Wait.
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
