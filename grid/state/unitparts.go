package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"croft/grid/unit"
)

// mounts parses "/from:/to[:ro]".
func (m *making) mounts(u *unit.Unit, f fields) {
	for _, one := range f.texts("mounts") {
		parts := strings.Split(one, ":")
		readOnly := len(parts) == 3 && parts[2] == "ro"
		if one != "" && (len(parts) != 2 && !readOnly || !path.IsAbs(parts[0]) || !path.IsAbs(parts[1])) {
			m.problems.add(f.at("mounts"), "mounts: %q is not /from:/to or /from:/to:ro, with absolute paths", one)
			continue
		}
		if one != "" {
			u.Mounts = append(u.Mounts, unit.Mount{From: path.Clean(parts[0]), To: path.Clean(parts[1]),
				ReadOnly: readOnly})
		}
	}
}

// ports parses "[address:]node:unit[/udp]".
func (m *making) ports(u *unit.Unit, f fields) {
	for _, one := range f.texts("ports") {
		if one == "" {
			continue // not known before the slot has a node
		}
		p, ok := parsePort(one)
		if !ok {
			m.problems.add(f.at("ports"), "ports: %q is not [ADDRESS:]NODE:UNIT[/udp], with ports from 1 to 65535", one)
			continue
		}
		if slices.ContainsFunc(u.Ports, p.Overlaps) {
			m.problems.add(f.at("ports"), "ports: the port %d/%s of the node is given twice", p.Node, p.Protocol)
		}
		u.Ports = append(u.Ports, p)
	}
}

func parsePort(s string) (p unit.Port, ok bool) {
	rest, protocol, given := strings.Cut(s, "/")
	if p.Protocol = protocol; !given {
		p.Protocol = "tcp"
	}
	at := strings.LastIndexByte(rest, ':')
	if at < 0 || p.Protocol != "tcp" && p.Protocol != "udp" {
		return p, false
	}
	node, inside := rest[:at], rest[at+1:]
	if at := strings.LastIndexByte(node, ':'); at >= 0 {
		address := strings.TrimSuffix(strings.TrimPrefix(node[:at], "["), "]")
		if _, err := netip.ParseAddr(address); err != nil {
			return p, false
		}
		p.Address, node = address, node[at+1:]
	}
	var okNode, okUnit bool
	p.Node, okNode = port(node)
	p.Unit, okUnit = port(inside)
	return p, okNode && okUnit
}

func port(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= 65535 && strconv.Itoa(n) == s
}

// unitFiles reads the files of a unit. Errors are errors of opening secrets.
func (m *making) unitFiles(u *unit.Unit, f fields) error {
	list := f.get("files")
	if list == nil {
		return nil
	}
	if list.Kind != List {
		f.wants(list, "files", "a list of {path, mode, content or from}")
		return nil
	}
	seen := map[string]bool{}
	for i, item := range list.Items {
		in := fields{item, &m.problems, "files." + strconv.Itoa(i) + "."}
		if item.Kind != Map {
			f.wants(item, "files."+strconv.Itoa(i), "{path, mode, content or from}")
			continue
		}
		file := unit.File{Path: in.text("path"), Mode: in.mode("mode", 0o644), Secret: in.boolean("secret")}
		if item.Fields["path"] == nil || file.Path != "" && !path.IsAbs(file.Path) {
			m.problems.add(in.at("path"), "files.%d: want an absolute path, not %q", i, file.Path)
		} else if file.Path != "" && seen[file.Path] {
			m.problems.add(in.at("path"), "files.%d: %s is given twice", i, file.Path)
		}
		seen[file.Path] = true
		if err := m.content(&file, in, i); err != nil {
			return fmt.Errorf("%s: the file %s of %s, slot %d: %w", item.At, file.Path, u.Job, u.Slot, err)
		}
		file.ModeUnset = file.Secret && item.Fields["mode"] == nil
		u.Files = append(u.Files, file)
	}
	return nil
}

// env reads the environment of a unit. Errors are errors of opening secrets.
func (m *making) env(u *unit.Unit, f fields) error {
	v := f.get("env")
	if v == nil || v.Kind != Map {
		u.Env = f.textMap("env")
		return nil
	}
	u.Env = make(map[string]string, len(v.Keys))
	for _, name := range slices.Sorted(slices.Values(v.Keys)) {
		value := v.Fields[name]
		if !value.Sealed() {
			u.Env[name], _ = f.textOf(value, "env."+name)
			continue
		}
		if !unit.IsVariable(name) {
			m.problems.add(value.At, "env.%s: the name of a variable with a secret has only letters, digits and _, "+
				"and does not start with a digit", name)
			continue
		}
		variable := unit.SecretVar{Name: name, Digest: m.keyed(value.sealedText())}
		if m.secrets != nil {
			var err error
			if variable.Content, err = m.open(value); err != nil {
				return fmt.Errorf("%s: the variable %s of %s, slot %d: %w", value.At, name, u.Job, u.Slot, err)
			}
		}
		u.SecretEnv = append(u.SecretEnv, variable)
	}
	return nil
}

// sealedText returns the text from which the digest of a secret is made. It differs for values with different parts.
func (v *Value) sealedText() string {
	if len(v.Parts) == 0 {
		return v.Text
	}
	var b strings.Builder
	for _, part := range v.Parts {
		fmt.Fprintf(&b, "%t %d %s", part.Sealed(), len(part.Text), part.Text)
	}
	return b.String()
}

// open opens a sealed value, or all sealed values in a text.
func (m *making) open(v *Value) (string, error) {
	parts := v.Parts
	if len(parts) == 0 {
		parts = []*Value{v}
	}
	var b strings.Builder
	for _, part := range parts {
		if !part.Sealed() {
			b.WriteString(part.Text)
			continue
		}
		opened, err := m.secrets.Open(m.ctx, part.Text)
		if err != nil {
			return "", err
		}
		b.Write(opened)
	}
	return b.String(), nil
}

// isSealed reports whether a text is sealed: in the text format of age, with the prefix age:, or as a file of sops.
func isSealed(text string) bool {
	return strings.Contains(text, "ENC[AES256_GCM,") && strings.Contains(text, "sops") ||
		strings.HasPrefix(text, sealed) || strings.HasPrefix(text, "-----BEGIN AGE ENCRYPTED FILE-----") ||
		strings.HasPrefix(text, "age-encryption.org/")
}

// content reads the content of a file, and opens it if it is sealed.
func (m *making) content(file *unit.File, in fields, i int) error {
	content, from := in.v.Fields["content"], in.v.Fields["from"]
	if (content == nil) == (from == nil) {
		m.problems.add(in.v.At, "files.%d: give one of content and from (a file of the cluster's directory)", i)
		return nil
	}
	var text string
	switch {
	case content != nil && content.Sealed():
		file.Secret, file.Digest = true, m.keyed(content.sealedText())
		if m.secrets == nil {
			return nil
		}
		var err error
		file.Content, err = m.open(content)
		return err
	case content != nil:
		text = in.text("content")
	default:
		name := in.text("from")
		if name == "" {
			return nil
		}
		var err error
		if text, err = m.files.read(name, maxContent); err != nil {
			m.problems.add(from.At, "files.%d.from: %s: %s", i, name, err)
			return nil
		}
	}
	switch {
	case !isSealed(text) && file.Secret:
		file.Digest = m.keyed(text)
		if m.secrets != nil {
			file.Content = text
		}
	case !isSealed(text):
		sum := sha256.Sum256([]byte(text))
		file.Content, file.Digest = text, hex.EncodeToString(sum[:])
	default:
		file.Secret, file.Digest = true, m.keyed(text)
		if m.secrets == nil {
			return nil
		}
		opened, err := m.secrets.Open(m.ctx, text)
		if err != nil {
			return err
		}
		file.Content = string(opened)
	}
	return nil
}

// mode reads permission bits, which people write in octal: 0644, 0o644 or "0644".
func (f fields) mode(key string, otherwise uint32) uint32 {
	v := f.get(key)
	if v == nil {
		return otherwise
	}
	n, err := strconv.ParseUint(strings.Replace(v.Text, "o", "", 1), 8, 32)
	if v.Kind != Int && v.Kind != String || err != nil || n > 0o7777 || !strings.HasPrefix(v.Text, "0") {
		f.wants(v, key, `permission bits in octal, such as 0644`)
		return otherwise
	}
	return uint32(n)
}

// vm reads the virtual machine of a job with the runtime vm.
func (m *making) vm(u *unit.Unit, f fields) {
	in := f.below("vm")
	if in.v == nil {
		return
	}
	vm := &unit.VM{VCPUs: in.number("vcpus", 1, 1024, 1), Memory: in.size("memory"), Disk: in.size("disk"),
		Image: in.text("image"), Network: in.text("network"), VirtType: in.one("virt_type", "kvm", "kvm", "qemu")}
	if vm.Network == "" {
		vm.Network = "default"
	}
	for _, key := range []string{"memory", "disk", "image"} {
		if in.v.Fields[key] == nil {
			m.problems.add(in.v.At, "vm: it needs memory, disk and image, and has no %s", key)
		}
	}
	if name := in.text("user_data"); name != "" {
		text, err := m.files.read(name, maxFile)
		if err != nil {
			m.problems.add(in.at("user_data"), "vm.user_data: %s: %s", name, err)
		}
		vm.UserData = text
	}
	u.VM = vm
}
