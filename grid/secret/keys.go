package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"github.com/adrg/xdg"
	"golang.org/x/crypto/ssh"

	"croft"
)

// RecipientsFile is the path, relative to a cluster's directory, of the file that lists who may read the cluster's
// secrets. Each line is an age recipient or a public SSH key; a line that starts with # is a comment.
const RecipientsFile = "secrets/recipients"

// Environment variables that Identities reads when the caller names no file.
const (
	identityVariable = "AGE_IDENTITY"      // AGE-SECRET-KEY-1...
	fileVariable     = "AGE_IDENTITY_FILE" // a file of identities, or an SSH key
)

const hint = "set AGE_IDENTITY_FILE to a file made by age-keygen or to an SSH key, or AGE_IDENTITY to the identity itself"

// Identities returns the identities that open secrets. It uses the first of these sources that exists: the named files;
// AGE_IDENTITY; the file AGE_IDENTITY_FILE. If none exists, it uses every file of croft/age.txt in the user's
// configuration directory, ~/.ssh/id_ed25519 and ~/.ssh/id_rsa that exists; an SSH key with a passphrase is skipped.
// Invalid: a file cannot be parsed, or other users may read it.
func Identities(files ...string) ([]age.Identity, error) {
	if value := os.Getenv(identityVariable); value != "" && len(files) == 0 {
		list, err := age.ParseIdentities(strings.NewReader(value))
		if err != nil {
			// the error must not contain the value
			return nil, croft.Errorf(croft.Invalid, "%s contains no age identity", identityVariable)
		}
		return list, nil
	}
	if file := os.Getenv(fileVariable); file != "" && len(files) == 0 {
		files = []string{file}
	}
	var list []age.Identity
	for _, file := range files {
		some, err := readIdentities(file)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	if len(files) > 0 {
		return list, nil
	}
	return usual()
}

// usual returns the identities of the default files, for a user who named none.
func usual() ([]age.Identity, error) {
	files := []string{filepath.Join(xdg.ConfigHome, "croft", "age.txt")}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".ssh", "id_ed25519"), filepath.Join(home, ".ssh", "id_rsa"))
	}
	var list []age.Identity
	for i, file := range files {
		some, err := readIdentities(file)
		var locked *ssh.PassphraseMissingError
		switch {
		case errors.Is(err, fs.ErrNotExist) || i > 0 && errors.As(err, &locked):
		case err != nil:
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

func readIdentities(file string) ([]age.Identity, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, croft.Errorf(croft.Invalid,
			"identity %s: others may read it, its mode is %04o: chmod 600 it, and if others "+
				"could log in here make a new one and rotate", file, mode)
	}
	text := make([]byte, maxValue)
	n, err := f.Read(text)
	if err != nil && n == 0 {
		return nil, croft.Errorf(croft.Invalid, "identity %s: it is empty", file)
	}
	text = text[:n]
	if strings.Contains(string(text), "PRIVATE KEY-----") {
		identity, err := agessh.ParseIdentity(text)
		if locked, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
			return nil, croft.Errorf(croft.Invalid,
				"identity %s: it has a passphrase, and croft does not ask for it: name another identity: %w",
				file, locked)
		}
		if err != nil {
			return nil, croft.Errorf(croft.Invalid,
				"identity %s: no SSH key that age can use (ed25519 and RSA are): %w", file, err)
		}
		return []age.Identity{identity}, nil
	}
	list, err := age.ParseIdentities(strings.NewReader(string(text)))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "identity %s: neither a file of age-keygen nor an SSH key",
			file) // the error must not contain the text
	}
	return list, nil
}

// ParseRecipients parses one recipient per line: age1..., ssh-ed25519 ... or ssh-rsa ... Invalid: the error starts with
// the file's name and the line number.
func ParseRecipients(file, text string) ([]age.Recipient, error) {
	var list []age.Recipient
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		one, err := parseRecipient(line)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid,
				"%s:%d: %.60q is no recipient (age1..., ssh-ed25519 ... or ssh-rsa ...): %w", file,
				number, shown(line), err)
		}
		list = append(list, one)
	}
	return list, nil
}

// shown returns a line as an error message may print it: an identity that was written in place of a recipient is cut.
func shown(line string) string {
	if strings.HasPrefix(strings.ToUpper(line), "AGE-SECRET-KEY-") {
		return "AGE-SECRET-KEY-..."
	}
	return line
}

func parseRecipient(line string) (age.Recipient, error) {
	switch {
	case strings.HasPrefix(strings.ToUpper(line), "AGE-SECRET-KEY-"):
		return nil, errors.New("it is an identity, which is to stay secret: age-keygen -y prints its recipient")
	case strings.HasPrefix(line, "age1"):
		list, err := age.ParseRecipients(strings.NewReader(line))
		if err != nil {
			return nil, errors.New("it is mistyped or cut off")
		}
		return list[0], nil
	}
	return agessh.ParseRecipient(line)
}

// Recipients reads RecipientsFile of the cluster in dir. NotFound: the file does not exist. Invalid: a line is no
// recipient, or the file lists none.
func Recipients(dir string) ([]age.Recipient, error) {
	text, err := os.ReadFile(filepath.Join(dir, RecipientsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, croft.Errorf(croft.NotFound,
			"%s: there is no such file in %s: list who may read the secrets there, one "+
				"recipient on a line (age1..., ssh-ed25519 ...)", RecipientsFile, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("recipients: %w", err)
	}
	list, err := ParseRecipients(RecipientsFile, string(text))
	if err == nil && len(list) == 0 {
		err = croft.Errorf(croft.Invalid, "%s: it lists no recipients", RecipientsFile)
	}
	return list, err
}
