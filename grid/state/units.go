package state

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/grid/unit"
)

// Nodes returns every node with the units that are to run there, by id. secrets opens sealed values; with nil they stay
// sealed, and the units differ only in the contents of those files. Errors: Invalid with file and line, including two
// slots with the same port of a node; errors of secrets and of Addresses.
func (s *State) Nodes(ctx context.Context, secrets Secrets) ([]unit.Node, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	defer root.Close()
	m := &making{ctx: ctx, s: s, files: files{root}, secrets: secrets, digests: map[string]string{}}
	at := make(map[*Node]int, len(s.Leaves))
	all := make([]unit.Node, len(s.Leaves))
	for i, n := range s.Leaves {
		at[n] = i
		all[i] = s.Reach(n)
	}
	ports := portUses{}
	for _, j := range s.Jobs {
		for _, slot := range j.Slots {
			if slot.Node == nil {
				continue
			}
			u, err := m.unit(j, slot.Number, slot.Node)
			if err != nil {
				return nil, err
			}
			ports.add(j, slot.Number, slot.Node, u, &m.problems)
			to := &all[at[slot.Node]]
			to.Units = append(to.Units, u)
		}
	}
	if err := m.problems.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b unit.Node) int { return a.ID - b.ID })
	return all, ctx.Err()
}

// Unit returns the unit of one slot of a job on a node, whether or not the slot is assigned to it, without opening
// secrets. If Addresses is nil, an address that the job asks for is left out.
func (s *State) Unit(ctx context.Context, j *Job, slot int, n *Node) (unit.Unit, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return unit.Unit{}, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	defer root.Close()
	m := &making{ctx: ctx, s: s, files: files{root}, digests: map[string]string{}}
	m.dry = s.Addresses == nil && j.Values.Get("address") != nil
	u, err := m.unit(j, slot, n)
	if err == nil {
		err = m.problems.err()
	}
	return u, err
}

// making builds units.
type making struct {
	ctx      context.Context
	s        *State
	files    files
	secrets  Secrets
	problems problems
	digests  map[string]string // of archives, by path
	dry      bool              // do not read archives or ask for addresses
}

// Check reports mistakes in the units that Load cannot detect: references to values that a node lacks, and two slots
// with the same port of a node. It reads no archives, opens no secrets and asks for no addresses. Invalid, several
// joined.
func (s *State) Check(ctx context.Context) error {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	defer root.Close()
	m := &making{ctx: ctx, s: s, files: files{root}, digests: map[string]string{}, dry: true}
	ports := portUses{}
	for _, j := range s.Jobs {
		for _, slot := range j.Slots {
			if slot.Node == nil {
				continue
			}
			u, err := m.unit(j, slot.Number, slot.Node)
			if err != nil {
				return err
			}
			ports.add(j, slot.Number, slot.Node, u, &m.problems)
		}
	}
	return m.problems.err()
}

// Allocate asks Addresses for the address of each slot whose job wants one, and does nothing else. Errors: errors of
// Addresses, and Invalid.
func (s *State) Allocate(ctx context.Context) error {
	m := &making{ctx: ctx, s: s}
	for _, j := range s.Jobs {
		if j.Values.Get("address") == nil {
			continue
		}
		for _, slot := range j.Slots {
			if slot.Node == nil {
				continue
			}
			if _, err := m.scope(j, slot.Number, slot.Node); err != nil {
				return err
			}
		}
	}
	return errors.Join(m.problems.err(), ctx.Err())
}

// tryUnit reports mistakes in a job, even if the job has no slots yet.
func (l *loading) tryUnit(j *Job, p *problems) {
	m := &making{ctx: l.ctx, s: l.s, files: l.files, dry: true, digests: map[string]string{}}
	if _, err := m.unit(j, 0, nil); err != nil {
		m.problems.add(Position{File: j.Path}, "%s", err)
	}
	p.list = append(p.list, m.problems.list...)
}

// unit builds the unit of a slot.
func (m *making) unit(j *Job, slot int, n *Node) (unit.Unit, error) {
	u := unit.Unit{Cluster: m.s.Cluster.ID, Job: j.Name, Slot: slot, Exclusive: j.Exclusive, Confirm: j.Confirm}
	scope, err := m.scope(j, slot, n)
	if err != nil {
		return u, err
	}
	u.Address, u.Pooled = scope.address, scope.pooled
	values := newMap(j.Values.At, len(j.Values.Keys))
	for _, key := range j.Values.Keys {
		if slices.Contains(placingKeys, key) || key == "var" {
			continue
		}
		if !slices.Contains(jobKeys, key) {
			continue // unknown keys are only used through ${...}
		}
		v, problem := scope.expand(j.Values.Fields[key])
		if problem != nil {
			m.problems.list = append(m.problems.list, *problem)
			continue
		}
		values.set(key, v)
	}
	f := fields{values, &m.problems, ""}
	m.runtime(&u, f, n)
	if u.Interface = f.text("interface"); u.Interface == "" && n != nil && u.Address != "" {
		u.Interface = fields{n.Values, &m.problems, ""}.text("interface")
	}
	m.image(&u, f)
	u.Command, u.User = f.texts("command"), f.text("user")
	if err := m.env(&u, f); err != nil {
		return u, err
	}
	u.Options = f.textMap("options")
	u.Network = f.one("network", "", "host", "bridge", "none")
	limits := f.below("limits")
	u.CPU, u.Memory = float64(limits.amount("cpu"))/1000, limits.size("memory")
	u.Ready = check(f.below("ready"))
	m.mounts(&u, f)
	m.ports(&u, f)
	if err := m.unitFiles(&u, f); err != nil {
		return u, err
	}
	m.vm(&u, f)
	return u, nil
}

// scope returns the names that are known in a slot, including the slot's address if it has one; without a node, the
// names that are known in every slot.
func (m *making) scope(j *Job, slot int, n *Node) (*scope, error) {
	s := j.scope()
	s.later = n == nil
	if n == nil {
		return s, nil
	}
	s.names["slot"] = &Value{Kind: Int, Text: strconv.Itoa(slot)}
	s.names["node"] = n.asValue()
	address, err := m.address(j, slot, s)
	if err != nil {
		return nil, err
	}
	switch host := cmp.Or(n.IP, hostOf(n.Address)); {
	case address != "":
		s.names["ip"] = text(address)
	case m.dry && j.Values.Get("address") != nil:
		s.names["ip"] = &Value{Kind: Anything}
	case n.Local && host == "":
		s.names["ip"] = text("127.0.0.1")
	default:
		s.names["ip"] = text(host)
	}
	s.address = address
	return s, nil
}

// asValue returns the value of ${node}: the node's own values, and its name, id and address unless the values define
// these.
func (n *Node) asValue() *Value {
	v := newMap(n.Values.At, len(n.Values.Keys)+3)
	v.set("name", text(n.Name))
	v.set("id", &Value{Kind: Int, Text: strconv.Itoa(n.ID)})
	v.set("address", text(n.Address))
	for _, key := range n.Values.Keys {
		v.set(key, n.Values.Fields[key])
	}
	return v
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	if at, err := netip.ParseAddrPort(address); err == nil {
		return at.Addr().String()
	}
	if strings.Count(address, ":") == 1 {
		address, _, _ = strings.Cut(address, ":")
	}
	return address
}

// address asks for the address of a slot.
func (m *making) address(j *Job, slot int, s *scope) (string, error) {
	asks := j.Values.Get("address")
	if asks == nil {
		return "", nil
	}
	v, problem := s.expand(asks)
	if problem != nil {
		return "", croft.Errorf(croft.Invalid, "%s", problem)
	}
	pool, ok := fields{nil, &m.problems, ""}.textOf(v, "address")
	if !ok {
		return "", nil
	}
	if ip, err := netip.ParseAddr(pool); err == nil {
		return ip.String(), nil
	}
	s.pooled = true
	if m.dry {
		return "", nil
	}
	if m.s.Addresses == nil {
		return "", croft.Errorf(croft.Invalid, "%s: the job %s asks for an address of %s, and nothing here gives addresses",
			asks.At, j.Name, pool)
	}
	given, err := m.s.Addresses(m.ctx, j.Name, slot, pool)
	if err != nil {
		return "", fmt.Errorf("%s: the address of %s, slot %d: %w", asks.At, j.Name, slot, err)
	}
	return given, nil
}

func (m *making) runtime(u *unit.Unit, f fields, n *Node) {
	u.Runtime = f.text("runtime")
	if u.Runtime == "" && n != nil {
		u.Runtime = fields{n.Values, &m.problems, ""}.text("runtime")
	}
	if u.Runtime == "" {
		u.Runtime = m.s.Cluster.Runtime
	}
	if u.Runtime == "" && n != nil {
		m.problems.add(f.at("runtime"), "the job %s has no runtime, nor has cluster.yaml", u.Job)
	}
}

func (m *making) image(u *unit.Unit, f fields) {
	in := f.below("image")
	if in.v == nil {
		return
	}
	u.Image = unit.Image{Rootfs: in.text("rootfs"), Archive: in.text("archive"), Registry: in.text("registry")}
	ways := 0
	for _, key := range []string{"rootfs", "archive", "registry"} {
		if in.v.Fields[key] != nil {
			ways++
		}
	}
	if ways != 1 {
		m.problems.add(in.v.At, "image: give one of rootfs (a directory of the node), archive (a file here) and registry")
	}
	if u.Image.Rootfs != "" && !path.IsAbs(u.Image.Rootfs) {
		m.problems.add(in.at("rootfs"), "image.rootfs: %q is no absolute path", u.Image.Rootfs)
	}
	if u.Image.Archive == "" {
		return
	}
	digest, err := m.digest(u.Image.Archive)
	if err != nil {
		m.problems.add(in.at("archive"), "image.archive: %s: %s", u.Image.Archive, err)
	}
	u.Image.Digest = digest
}

// digest returns the digest of an archive of the repository.
func (m *making) digest(name string) (string, error) {
	if had := m.digests[name]; had != "" {
		return had, nil
	}
	info, err := m.files.root.Stat(name)
	switch {
	case err != nil:
		return "", errors.New(reasonOf(err))
	case !info.Mode().IsRegular():
		return "", errors.New("this is no file")
	case m.dry:
		return "", nil
	}
	file, err := m.files.root.Open(name)
	if err != nil {
		return "", errors.New(reasonOf(err))
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", errors.New(reasonOf(err))
	}
	m.digests[name] = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return m.digests[name], nil
}

// keyed returns a digest of a secret that reveals nothing of it: it is made from the sealed text.
func (m *making) keyed(text string) string {
	sum := hmac.New(sha256.New, []byte(m.s.Cluster.ID))
	sum.Write([]byte(text))
	return hex.EncodeToString(sum.Sum(nil))
}
