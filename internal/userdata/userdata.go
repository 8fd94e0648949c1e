// Package userdata reads user-data like cloud-init, and joins several parts. Check finds user-data that a guest would
// ignore, or that would fail only long after the request; Join leaves each part unchanged, so that its meaning does not
// depend on the other parts.
package userdata

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"croft"
)

// maxUnpacked bounds uncompressed user-data, in bytes.
const maxUnpacked = 1 << 20

// Kind is the MIME type of a piece of user-data, as cloud-init determines it.
type Kind string

// The kinds that croft distinguishes. Plain is everything with an unknown first line; the guest may know more.
const (
	CloudConfig Kind = "text/cloud-config"
	Script      Kind = "text/x-shellscript"
	Boothook    Kind = "text/cloud-boothook" // a script for early in each boot
	Multipart   Kind = "multipart"
	Gzip        Kind = "application/gzip"
	Plain       Kind = "text/plain"
)

// KindOf returns the kind of data from its start, as cloud-init does: it compares prefixes in lower case, after white
// space. A script must start with the first byte, because the guest's kernel requires it.
func KindOf(data []byte) Kind {
	line := firstLine(data)
	start := strings.ToLower(string(bytes.TrimLeftFunc(data[:min(len(data), 512)], unicode.IsSpace)))
	switch {
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		return Gzip
	case strings.HasPrefix(line, "#!"):
		return Script
	case strings.HasPrefix(start, "#cloud-config-archive"):
		return Plain
	case strings.HasPrefix(start, "#cloud-config"):
		return CloudConfig
	case strings.HasPrefix(start, "#cloud-boothook"):
		return Boothook
	case isMessage(line):
		return Multipart
	}
	return Plain
}

func firstLine(data []byte) string {
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	return string(line[:min(len(line), 256)])
}

// isMessage reports whether the line starts the header of a MIME message.
func isMessage(line string) bool {
	name, _, _ := strings.Cut(strings.ToLower(line), ":")
	return name == "content-type" || name == "mime-version"
}

// Check checks user-data as far as possible outside the guest: its size, gzip that does not unpack, binary text,
// cloud-config that is not YAML, MIME without parts. Errors are Invalid. Empty data is valid.
func Check(data []byte) error {
	if len(data) > croft.MaxUserData {
		return croft.Errorf(
			croft.Invalid,
			"the user-data has %d bytes, and %d are the most that an instance may carry: compress it with gzip, or let it fetch the rest",
			len(data),
			croft.MaxUserData,
		)
	}
	if KindOf(data) == Gzip {
		var err error
		if data, err = unpack(data); err != nil {
			return croft.Errorf(croft.Invalid, "the user-data begins as gzip and does not unpack: %w", err)
		}
		if KindOf(data) == Gzip {
			return croft.Errorf(croft.Invalid, "the user-data is compressed twice: the guest unpacks it once")
		}
	}
	if err := checkText(data); err != nil {
		return croft.Errorf(croft.Invalid, "the user-data %w", err)
	}
	return nil
}

func unpack(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err == nil && len(out) > maxUnpacked {
		err = fmt.Errorf("it comes to more than %d bytes", maxUnpacked)
	}
	return out, err
}

// checkText checks uncompressed user-data. Its errors continue "the user-data ...".
func checkText(data []byte) error {
	line := firstLine(data)
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return errors.New(
			"begins with a byte order mark, which hides its format from the guest: save it as UTF-8 without one")
	case !utf8.Valid(data), bytes.ContainsRune(data, 0):
		return errors.New("is neither UTF-8 text nor gzip: encode other data in base64, or compress it")
	case lettersOf(line) == "cloudconfig" && KindOf(data) != CloudConfig:
		return fmt.Errorf("begins with %q, and cloud-init ignores all that does not begin with #cloud-config exactly",
			line)
	case strings.HasPrefix(line, "#!") && strings.HasSuffix(line, "\r"):
		return errors.New(
			"is a script with the line ends of Windows, for which the guest finds no interpreter: convert it (dos2unix)",
		)
	}
	switch KindOf(data) {
	case CloudConfig:
		return checkCloudConfig(data)
	case Multipart:
		if err := checkMessage(data); err != nil {
			return err
		}
		if !bytes.Contains(bytes.ToLower(data[:min(len(data), 4096)]), []byte("mime-version:")) {
			return errors.New(
				"is MIME without the header MIME-Version in its first 4096 bytes, and cloud-init then takes it " +
					"for plain text: add MIME-Version: 1.0",
			)
		}
	case Plain:
		return checkPlace(data)
	}
	return nil
}

// configKeys are top-level keys of cloud-config, as cloud-init's schema names them, with which no other kind of
// user-data starts.
var configKeys = []string{"apt", "bootcmd", "ca_certs", "chpasswd", "disable_root", "disk_setup", "final_message",
	"fqdn", "fs_setup", "groups", "growpart", "hostname", "keyboard", "locale", "manage_etc_hosts", "mounts", "ntp",
	"package_reboot_if_required", "package_update", "package_upgrade", "packages", "password", "phone_home",
	"power_state", "preserve_hostname", "resize_rootfs", "runcmd", "snap", "ssh_authorized_keys", "ssh_deletekeys",
	"ssh_import_id", "ssh_keys", "ssh_pwauth", "swap", "system_info", "timezone", "user", "users", "write_files",
	"yum_repos"}

// checkPlace finds cloud-config without its header, a header after the start of YAML, where cloud-init ignores it, and
// a script after white space.
func checkPlace(data []byte) error {
	n, begun := 0, false
	for line := range bytes.Lines(data) {
		n++
		text := strings.ToLower(string(bytes.TrimSpace(line)))
		first := !begun && text != ""
		begun = begun || first
		switch {
		case first && strings.HasPrefix(text, "#!"):
			return fmt.Errorf("has #! in line %d behind blanks, and no kernel runs a script that does not begin with it: "+
				"remove what is before it", n)
		case strings.HasPrefix(text, "## template:"):
			return nil
		case strings.HasPrefix(text, "#cloud-config"):
			return fmt.Errorf("has #cloud-config in line %d, and cloud-init ignores all that does not begin with it: "+
				"make it the first line", n)
		case text != "" && text != "---" && !strings.HasPrefix(text, "#") && !strings.HasPrefix(text, "%yaml"):
			key, _, isKey := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":")
			if isKey && slices.Contains(configKeys, key) {
				return fmt.Errorf(
					"begins with %s of cloud-config and not with #cloud-config, and cloud-init ignores it: "+
						"make #cloud-config the first line",
					key,
				)
			}
			return nil
		}
	}
	return nil
}

// lettersOf returns only the letters of a comment, in lower case.
func lettersOf(line string) string {
	if !strings.HasPrefix(line, "#") {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, line)
}

func checkCloudConfig(data []byte) error {
	var document, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(data))
	if err := documents.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("begins with #cloud-config and is not YAML: %w", err)
	}
	switch err := documents.Decode(&second); {
	case err == nil:
		return fmt.Errorf(
			"begins with #cloud-config and has a second YAML document behind line %d, for which cloud-init "+
				"applies none of them: remove the line ---",
			max(second.Line-1, 1),
		)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("begins with #cloud-config and is not YAML: %w", err)
	}
	if tagged := unknownTag(&document); tagged != nil {
		return fmt.Errorf("begins with #cloud-config and has the tag %s in line %d, which cloud-init does not know",
			tagged.Tag, tagged.Line)
	}
	if document.Kind == 0 || len(document.Content) == 0 {
		return nil // only comments
	}
	if root := document.Content[0]; root.Kind != yaml.MappingNode && root.Tag != "!!null" {
		return fmt.Errorf("begins with #cloud-config and has no key: value in line %d", root.Line)
	}
	return nil
}

// unknownTag returns a node with a tag that YAML itself does not define; nil: there is no such tag.
func unknownTag(n *yaml.Node) *yaml.Node {
	if tag := n.ShortTag(); tag != "" && !strings.HasPrefix(tag, "!!") && tag != "!" ||
		strings.HasPrefix(tag, "!!python/") {
		return n
	}
	for _, child := range n.Content {
		if found := unknownTag(child); found != nil {
			return found
		}
	}
	return nil
}
