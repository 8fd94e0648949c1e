package runtime

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/unit"
)

// values returns the values that the verbs of a runtime may refer to, for one unit. Without a unit, its values are
// empty.
func (r *Runtime) values(u unit.Unit) (hardpoint.Values, error) {
	if err := plainUnit(u); err != nil {
		return nil, err
	}
	home, units := hardpoint.Deferred("home"), hardpoint.Deferred("units")
	v := hardpoint.Values{
		"home": home, "units": units, "images": home + "/images", "runtime": r.Name(),
		"cluster": u.Cluster, "cluster.short": u.Cluster[:min(8, len(u.Cluster))], "job": u.Job, "slot": u.Slot,
		"name": "", "hash": "", "mark": "", "dir": hardpoint.Deferred("dir"),
		"command": u.Command, "user": u.User, "network": orHost(u.Network), "address": u.Address,
		"cpu": positive(u.CPU), "cpu.percent": positive(u.CPU * 100), "memory": positive(float64(u.Memory)),
		"lines": "100", "words": []string(nil), "interactive": false, "existing": "", "rooted": false,
	}
	if u.Job != "" {
		v["name"], v["hash"] = u.Name(), u.Hash()
		v["mark"] = strings.Join([]string{u.Name(), u.Hash(), u.Job, strconv.Itoa(u.Slot), u.Cluster}, "|")
	}
	r.image(v, u)
	addressValues(v, u)
	lists(v, u)
	for name, value := range u.Options {
		v["option."+name] = value
	}
	v["systemd.env"], v["systemd.command"] = systemdWords(environment(u)...), systemdWords(u.Command...)
	v["user.name"], v["user.group"] = userAndGroup(u.User)
	var arguments []string
	for _, word := range u.Command {
		arguments = append(arguments, strings.ReplaceAll(word, "$", "$$"))
	}
	v["systemd.arguments"] = arguments
	oci, err := ociConfig(u, v["image.root"].(string))
	if err != nil {
		return nil, err
	}
	v["oci"] = oci
	return v, machineValues(v, u)
}

// addressValues adds the unit's own address, in the value for its destination: a network of containers (address.ip4,
// address.ip6), or an interface of the node while the unit runs (address.node, as ADDRESS/BITS).
func addressValues(v hardpoint.Values, u unit.Unit) {
	v["address.ip4"], v["address.ip6"], v["address.node"], v["interface"] = "", "", "", u.Interface
	a, err := netip.ParseAddr(u.Address)
	switch inside := u.Network == "bridge" || u.Options["network"] != ""; {
	case err != nil:
	case inside && a.Is4():
		v["address.ip4"] = u.Address
	case inside:
		v["address.ip6"] = u.Address
	case u.Network != "none" && (u.Interface != "" || u.Pooled):
		v["address.node"] = netip.PrefixFrom(a, a.BitLen()).String()
	}
}

func userAndGroup(both string) (user, group string) {
	user, group, _ = strings.Cut(both, ":")
	return user, group
}

func orHost(network string) string {
	if network == "" {
		return "host"
	}
	return network
}

// positive formats a number; "" if it is not positive.
func positive(x float64) string {
	if x <= 0 {
		return ""
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

func (r *Runtime) image(v hardpoint.Values, u unit.Unit) {
	hex := strings.TrimPrefix(u.Image.Digest, "sha256:")
	v["image.kind"], v["image.root"] = "", ""
	v["image.rootfs"], v["image.archive"], v["image.registry"], v["image.hex"] =
		u.Image.Rootfs, u.Image.Archive, u.Image.Registry, hex
	switch {
	case u.Image.Rootfs != "":
		v["image.kind"], v["image.root"], v["rooted"] = "rootfs", u.Image.Rootfs, true
	case u.Image.Archive != "":
		v["image.kind"], v["image.root"], v["rooted"] = "archive", hardpoint.Deferred("dir")+"/root", true
	case u.Image.Registry != "":
		v["image.kind"] = "registry"
	}
}

func lists(v hardpoint.Values, u unit.Unit) {
	var env, files, mounts, ports []hardpoint.Values
	for _, key := range slices.Sorted(maps.Keys(u.Env)) {
		env = append(env, hardpoint.Values{"key": key, "value": u.Env[key]})
	}
	for i, f := range u.Files {
		files = append(files, hardpoint.Values{"path": f.Path,
			"source": hardpoint.Deferred("dir") + "/files/" + strconv.Itoa(i)})
	}
	for _, m := range u.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		mounts = append(mounts, hardpoint.Values{"from": m.From, "to": m.To, "mode": mode, "readonly": m.ReadOnly})
	}
	for _, p := range u.Ports {
		ports = append(ports, hardpoint.Values{"address": p.Address, "node": p.Node, "unit": p.Unit,
			"protocol": p.Protocol, "publish": publish(p)})
	}
	var secrets []hardpoint.Values
	for _, variable := range u.SecretEnv {
		secrets = append(secrets, hardpoint.Values{"key": variable.Name})
	}
	v["secrets"], v["secrets.sh"], v["secrets.list"], v["secrets.systemd"] = secrets, "", "", ""
	if secrets != nil {
		for _, form := range []string{"sh", "list", "systemd"} {
			v["secrets."+form] = hardpoint.Deferred("dir") + "/env." + form
		}
	}
	v["env"], v["files"], v["mounts"], v["ports"] = env, files, mounts, ports
}

// publish formats a port as the options --publish of podman and docker want it.
func publish(p unit.Port) string {
	text := strconv.Itoa(p.Node) + ":" + strconv.Itoa(p.Unit)
	if strings.Contains(p.Address, ":") {
		text = "[" + p.Address + "]:" + text
	} else if p.Address != "" {
		text = p.Address + ":" + text
	}
	if p.Protocol != "" {
		text += "/" + p.Protocol
	}
	return text
}

func environment(u unit.Unit) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(u.Env)) {
		list = append(list, key+"="+u.Env[key])
	}
	return list
}

// systemdWords quotes words for a line of a systemd unit file.
func systemdWords(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "%", "%%", "$",
			"$$").Replace(w) + `"`
	}
	return strings.Join(quoted, " ")
}

// plainUnit refuses texts that cannot be passed to programs, such as those with a zero byte. Invalid.
func plainUnit(u unit.Unit) error {
	texts := slices.Concat(
		[]string{u.Cluster, u.Job, u.Network, u.Address, u.Interface, u.User, u.Image.Rootfs, u.Image.Archive,
			u.Image.Registry, u.Image.Digest},
		u.Command,
		environment(u),
	)
	for _, v := range u.SecretEnv {
		if hardpoint.Plain(v.Content) != nil { // its error would show the secret
			return croft.Errorf(
				croft.Invalid,
				"the secret in the variable %s has a zero byte, or a character of Unicode's "+
					"private use: put it into a file",
				v.Name,
			)
		}
	}
	for key, value := range u.Options {
		texts = append(texts, key, value)
	}
	for _, f := range u.Files {
		texts = append(texts, f.Path)
	}
	for _, m := range u.Mounts {
		texts = append(texts, m.From, m.To)
	}
	if u.VM != nil {
		texts = append(texts, u.VM.Image, u.VM.Network, u.VM.VirtType)
	}
	return hardpoint.Plain(texts...)
}

// check refuses a unit that uses features which the runtime lacks, with the reason in the runtime's file. Invalid.
func (r *Runtime) check(u unit.Unit) error {
	fail := func(format string, args ...any) error {
		return croft.Errorf(croft.Invalid, "job %s, slot %d, runtime %s: %w", u.Job, u.Slot, r.Name(),
			croft.Errorf(croft.Invalid, format, args...))
	}
	uses := map[string]bool{
		"rootfs": u.Image.Rootfs != "", "archive": u.Image.Archive != "", "registry": u.Image.Registry != "",
		"plain": u.Image == unit.Image{} && u.VM == nil, "bridge": u.Network == "bridge", "none": u.Network == "none",
		"user": u.User != "", "files": len(u.Files) > 0, "mounts": len(u.Mounts) > 0,
		"env": len(u.Env)+len(u.SecretEnv) > 0,
		"secretlines": slices.ContainsFunc(u.SecretEnv, func(v unit.SecretVar) bool {
			return strings.ContainsAny(v.Content, "\r\n")
		}),
		"command": len(u.Command) > 0, "cpu": u.CPU > 0, "memory": u.Memory > 0, "address": u.Address != "",
		"vm": u.VM != nil, "novm": u.VM == nil,
	}
	for _, feature := range slices.Sorted(maps.Keys(r.point.Cannot)) {
		used, known := uses[feature]
		if !known {
			return croft.Errorf(croft.Invalid, "%s: cannot: there is no feature %s, only %s", r.point.From, feature,
				strings.Join(slices.Sorted(maps.Keys(uses)), ", "))
		}
		if used {
			return fail("%s", r.point.Cannot[feature])
		}
	}
	if seconds, ok := u.Options["stop_seconds"]; ok {
		if n, err := strconv.Atoi(seconds); err != nil || n < 0 || n > 3600 {
			return fail("options: stop_seconds: %q is no number from 0 to 3600", seconds)
		}
	}
	if u.Network != "" && u.Network != "host" && u.Network != "bridge" && u.Network != "none" {
		return fail("network: %q is neither host, bridge nor none", u.Network)
	}
	if u.VM == nil && len(u.Command) == 0 && u.Image.Registry == "" && u.Options["boot"] == "" {
		return fail("it has no command, and no image of a registry that has one")
	}
	for _, p := range u.Ports {
		if orHost(u.Network) == "host" && p.Node != p.Unit {
			return fail(
				"port %d:%d: with the node's own network a unit listens at the port that it names: write %d, or "+
					"network: bridge",
				p.Node,
				p.Unit,
				p.Unit,
			)
		}
	}
	return checkPaths(u, fail)
}

func checkPaths(u unit.Unit, fail func(string, ...any) error) error {
	paths := map[string]string{}
	for _, f := range u.Files {
		paths[f.Path] = "file"
	}
	for _, m := range u.Mounts {
		paths[m.From], paths[m.To] = "mount", "mount"
	}
	if u.Image.Rootfs != "" {
		paths[u.Image.Rootfs] = "rootfs"
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, ":,\n|") || strings.Contains(path+"/", "/../") {
			return fail("%s %q: an absolute path without .., colons and commas is wanted", paths[path], path)
		}
	}
	return nil
}
