package kill

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
)

// A keeper is a user with instances that have data, volumes, snapshots, images and backups. It types one command after
// the other, and nobody but operators touches what it has; so it knows which data each disk may have.
type keeper struct {
	*actor
	kept    []*kept
	volumes []*kvolume
	images  []string
}

// A kept instance is one of a keeper.
type kept struct {
	id, name string
	shared   bool     // its disk is on shared storage
	snaps    []string // which exist, the oldest first
	unsure   bool     // there may be a snapshot that is not in snaps
	backups  []string
	gb       int64
}

// A kvolume is a volume of a keeper.
type kvolume struct {
	name     string
	shared   bool
	gb       int64
	instance string // UUID; it was requested there last
	unsure   bool   // it may be attached to instance, or not
}

// keep uses instances and disks until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	for ctx.Err() == nil {
		k.discardUnknown()
		if len(k.kept) < 2 || len(k.kept) < 4 && k.r.IntN(12) == 0 {
			k.create()
			continue
		}
		i := k.kept[k.r.IntN(len(k.kept))]
		inst, exists := k.w.ledger.record(i.id)
		switch {
		case !exists:
			k.drop(i)
		case inst.State == croft.StateLost:
			k.recover(i)
		default:
			k.use(i)
		}
	}
}

// use does one random action with an instance.
func (k *keeper) use(i *kept) {
	if k.r.IntN(4) == 0 {
		k.hit(i)
	}
	dice := k.r.IntN(100)
	switch {
	case dice < 30:
		k.write(i)
	case dice < 36:
		k.createVolume(i)
	case dice < 44:
		k.attach(i)
	case dice < 50:
		k.detach()
	case dice < 53:
		k.grow()
	case dice < 56:
		k.removeVolume()
	case dice < 64:
		k.snapshot(i)
	case dice < 69:
		k.rollBack(i)
	case dice < 74:
		k.removeSnapshot(i)
	case dice < 79:
		k.resize(i)
	case dice < 87:
		k.move(i)
	case dice < 91:
		k.useImages(i)
	case dice < 97 && k.w.backups:
		k.useBackups(i)
	case dice < 98:
		k.run(false, "schedule", "reboot", i.id)
	case dice == 99:
		k.destroyKept(i)
	}
}

// hit kills the agent of an instance at a random moment of the next action.
func (k *keeper) hit(i *kept) {
	h := k.host(i)
	if h == nil {
		return
	}
	after, down := time.Duration(k.r.Int64N(int64(600*time.Millisecond))), time.Duration(k.r.Int64N(int64(time.Second)))
	k.w.work.Go(func() {
		k.w.sleep(after)
		k.w.suffer(h.process, "kill an agent during an action with its disks", down, h.kill)
	})
}

// host returns the host of an instance; nil: it has none.
func (k *keeper) host(i *kept) *host {
	inst, _ := k.w.ledger.record(i.id)
	for _, h := range k.w.hosts {
		if inst.Host != "" && h.id() == string(inst.Host) {
			return h
		}
	}
	return nil
}

func (k *keeper) drop(i *kept) {
	k.kept = slices.DeleteFunc(k.kept, func(other *kept) bool { return other == i })
	for _, v := range k.volumes {
		if v.instance == i.id {
			v.instance, v.unsure = "", false
		}
	}
}

// discardUnknown destroys instances that restores left whose commands were killed.
func (k *keeper) discardUnknown() {
	for _, inst := range k.w.ledger.pick(func(i croft.Instance) bool { return strings.HasPrefix(i.Name, k.prefix()) }) {
		known := slices.ContainsFunc(k.kept, func(i *kept) bool { return i.id == string(inst.ID) })
		if !known && k.r.IntN(4) == 0 {
			k.run(false, "schedule", "remove", string(inst.ID), "--snapshots")
		}
	}
}

func (k *keeper) prefix() string { return fmt.Sprintf("k%d-", k.n) }

func (k *keeper) name(kind string) string {
	k.made++
	return fmt.Sprintf("%s%s%d", k.prefix(), kind, k.made)
}

// waits are the arguments of a command that waits, but not for a host that stays away.
var waits = []string{"--wait", "--timeout", "15s"}

// create requests an instance.
func (k *keeper) create() {
	i := &kept{id: string(croft.NewInstanceID()), name: k.name("vm"), gb: 1}
	args := []string{"VCPU:1,MEMORY_MB:64,DISK_GB:1"}
	if len(k.images) > 0 && k.r.IntN(3) == 0 {
		args = append(args, k.images[k.r.IntN(len(k.images))])
	}
	args = append(args, "--name", i.name, "--uuid", i.id)
	restart := []string{"elsewhere", "elsewhere:image", "elsewhere:backup", "on-failure"}
	if i.shared = k.r.IntN(3) == 0; i.shared {
		args = append(args, "--storage", storageName)
		restart = []string{"elsewhere", "elsewhere:disk", "on-failure"}
	}
	args = append(args, "--restart", restart[k.r.IntN(len(restart))])
	var with *kvolume
	switch dice := k.r.IntN(4); {
	case dice == 0 && !i.shared:
		with = &kvolume{name: k.name("vol"), gb: 1}
		args = append(args, "--disk", "1G:"+with.name)
		k.w.disks.name("volume", with.name, func(f *nameFact) { f.sizeGB = 1 })
	case dice == 1:
		if free := k.free(); free != nil {
			with = free
			args = append(args, "--volume", with.name)
		}
	}
	k.w.facts.change(i.id, func(f *fact) { f.wants = map[string]bool{"running": true, "stopped": true} })
	r := k.run(false, "schedule", args...)
	k.told(r)
	made := notified.MatchString(r.out)
	if with != nil {
		with.instance, with.unsure = i.id, !made
		if !slices.Contains(k.volumes, with) && made {
			k.w.disks.name("volume", with.name, func(f *nameFact) { f.created = true })
			k.volumes = append(k.volumes, with)
		}
	}
	if r.code == croft.ExitNoCapacity && !made {
		k.w.facts.change(i.id, func(f *fact) { f.refused = true })
	}
	if r.code == croft.ExitUnavailable { // a part is away
		k.w.sleep(200 * time.Millisecond)
	}
	if made {
		k.kept = append(k.kept, i)
		k.run(false, "schedule", append([]string{"wait", i.id}, waits[1:]...)...)
	}
}

// free returns a volume that is attached nowhere; nil: there is none.
func (k *keeper) free() *kvolume {
	for _, v := range k.volumes {
		if v.instance == "" && !v.unsure {
			return v
		}
	}
	return nil
}

// recover does something about a lost instance.
func (k *keeper) recover(i *kept) {
	i.snaps, i.unsure = nil, false
	switch dice := k.r.IntN(10); {
	case dice < 5:
		k.run(false, "schedule", append([]string{"recreate", i.id}, waits...)...)
	case dice < 8 && len(i.backups) > 0:
		k.restoreInPlace(i)
	case dice == 9:
		k.destroyKept(i)
	default:
		k.w.sleep(time.Second) // a server of the API recreates it, or its host is away
	}
}

func (k *keeper) destroyKept(i *kept) {
	k.w.facts.change(i.id, func(f *fact) { f.doomed = true })
	args := []string{"remove", i.id, "--snapshots"}
	if k.r.IntN(2) == 0 {
		args = append(args, waits...)
	}
	if k.run(false, "schedule", args...).ok() {
		k.w.facts.change(i.id, func(f *fact) { f.destroyed = true })
		k.drop(i)
	}
}

// write has a guest write a text to all its disks.
func (k *keeper) write(i *kept) {
	h := k.host(i)
	if h == nil {
		return
	}
	k.made++
	text, lost := fmt.Sprintf("%s@%d", i.name, k.made), k.w.ledger.lost(i.id)
	typed, said, err := k.typeTo(h, i, "write "+text)
	k.w.journal.write("keeper %d writes %s in %s on %s: typed %v, %q, %v", k.n, text, i.id, h.name, typed, said, err)
	where, ok := strings.CutPrefix(strings.TrimSpace(said), "written to ")
	switch {
	case ok:
		k.w.count("acknowledged writes of guests")
		for _, disk := range strings.Fields(where) {
			if disk == "disk" {
				disk = i.id
			}
			k.w.disks.wrote(disk, text, lost)
		}
	case typed:
		k.loosenAll(i, content{text: true})
	}
}

// loosenAll records that all disks of an instance may get a text at any time.
func (k *keeper) loosenAll(i *kept, text content) {
	for _, id := range append([]string{i.id}, k.volumeIDs(func(v *kvolume) bool { return v.instance == i.id })...) {
		k.w.disks.loosen(id, text)
		k.w.disks.change(id, func(f *diskFact) {
			for t := range text {
				f.ever[t] = true
			}
		})
	}
}

// volumeIDs returns the UUIDs of volumes that have been recorded.
func (k *keeper) volumeIDs(fits func(*kvolume) bool) (all []string) {
	for _, v := range k.volumes {
		if id := k.w.ledger.volumeID(v.name); fits(v) && id != "" {
			all = append(all, id)
		}
	}
	return all
}

// typeTo types a line at the console of a guest, and returns the next line that the guest says. typed reports whether
// the guest may have got the line.
func (k *keeper) typeTo(h *host, i *kept, line string) (typed bool, said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		h.api+"/v1/instances/"+i.id+"/console?takeover=1", nil)
	if err != nil {
		return false, "", err
	}
	request.Header.Set("Authorization", "Bearer "+k.w.ledger.token(h.id()))
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", compute.ConsoleProtocol)
	answer, err := consoles.Do(request)
	if err != nil {
		return false, "", err
	}
	defer answer.Body.Close()
	console, ok := answer.Body.(io.ReadWriteCloser)
	if !ok || answer.StatusCode != http.StatusSwitchingProtocols {
		return false, "", fmt.Errorf("%s", answer.Status)
	}
	stop := context.AfterFunc(ctx, func() { _ = console.Close() })
	defer stop()
	if _, err := io.WriteString(console, line+"\r"); err != nil {
		return true, "", err
	}
	lines := bufio.NewScanner(console)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), line) { // the echo
			return true, lines.Text(), nil
		}
	}
	return true, "", lines.Err()
}

// consoles is the client for consoles: with a timeout, the connection of an upgraded answer could not be written to.
var consoles = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (k *keeper) createVolume(i *kept) {
	if len(k.volumes) >= 5 {
		return
	}
	v := &kvolume{name: k.name("vol"), gb: 1, shared: k.r.IntN(3) == 0}
	args := []string{"volume", "create", v.name, "1G"}
	if v.shared {
		args = append(args, "--shared")
	} else {
		args = append(args, "--near", i.id)
	}
	k.w.disks.name("volume", v.name, func(f *nameFact) { f.sizeGB = 1 })
	if k.run(false, "croft", args...).ok() {
		k.w.disks.name("volume", v.name, func(f *nameFact) { f.created = true })
		k.volumes = append(k.volumes, v)
	}
}

func (k *keeper) attach(i *kept) {
	v := k.free()
	if v == nil || len(i.snaps) > 0 && k.r.IntN(4) != 0 {
		return
	}
	r := k.run(false, "croft", "volume", "attach", v.name, i.id)
	if r.ok() {
		v.instance, v.unsure = i.id, false
	} else if r.code == -1 || r.code == croft.ExitUnavailable {
		v.instance, v.unsure = i.id, true
	}
}

// taken picks a volume that is or may be attached.
func (k *keeper) taken() *kvolume {
	all := slices.DeleteFunc(slices.Clone(k.volumes), func(v *kvolume) bool { return v.instance == "" })
	if len(all) == 0 {
		return nil
	}
	return all[k.r.IntN(len(all))]
}

func (k *keeper) detach() {
	v := k.taken()
	if v == nil {
		return
	}
	if k.run(false, "croft", "volume", "detach", v.name).ok() {
		v.instance, v.unsure = "", false
	} else {
		v.unsure = true
	}
}

func (k *keeper) grow() {
	if len(k.volumes) == 0 {
		return
	}
	v := k.volumes[k.r.IntN(len(k.volumes))]
	v.gb++
	if k.run(false, "croft", "volume", "grow", v.name, fmt.Sprintf("%dG", v.gb)).ok() {
		k.w.disks.name("volume", v.name, func(f *nameFact) { f.sizeGB = v.gb })
	}
}

func (k *keeper) removeVolume() {
	v := k.free()
	if v == nil {
		return
	}
	k.w.disks.name("volume", v.name, func(f *nameFact) { f.doomed = true })
	if k.run(false, "croft", "volume", "remove", v.name).ok() {
		k.w.disks.name("volume", v.name, func(f *nameFact) { f.removed = true })
		k.volumes = slices.DeleteFunc(k.volumes, func(other *kvolume) bool { return other == v })
	}
}

func (k *keeper) snapshot(i *kept) {
	if i.shared || len(i.snaps) > 2 {
		return
	}
	name := k.name("snap")
	k.w.disks.name("snapshot", name, func(f *nameFact) { f.instance, f.data = i.id, k.w.disksNow(i.id) })
	r := k.run(false, "croft", "snapshot", "create", i.id, name)
	if r.ok() {
		k.w.disks.name("snapshot", name, func(f *nameFact) { f.created = true })
		i.snaps = append(i.snaps, name)
	} else if r.code == -1 || r.code == croft.ExitUnavailable {
		i.snaps, i.unsure = append(i.snaps, name), true
	}
}

func (k *keeper) rollBack(i *kept) {
	if len(i.snaps) == 0 || i.unsure {
		return
	}
	name := i.snaps[len(i.snaps)-1]
	var data content
	k.w.disks.name("snapshot", name, func(f *nameFact) { data = f.data })
	r := k.run(false, "croft", "snapshot", "rollback", i.id, name, "--stop")
	if r.ok() {
		k.w.disks.set(i.id, data)
	} else {
		k.w.disks.loosen(i.id, data)
	}
	// What the snapshot has of volumes was in them when it was taken.
	for _, id := range k.volumeIDs(func(v *kvolume) bool { return v.instance == i.id }) {
		k.w.disks.change(id, func(f *diskFact) {
			for text := range f.ever {
				f.may[text], f.loose[text] = true, true
			}
			f.may[""], f.loose[""] = true, true
		})
	}
}

func (k *keeper) removeSnapshot(i *kept) {
	if len(i.snaps) == 0 {
		return
	}
	at := k.r.IntN(len(i.snaps))
	name := i.snaps[at]
	k.w.disks.name("snapshot", name, func(f *nameFact) { f.doomed = true })
	r := k.run(false, "croft", "snapshot", "remove", i.id, name)
	if r.ok() {
		k.w.disks.name("snapshot", name, func(f *nameFact) { f.removed = true })
	}
	if r.ok() || r.code == croft.ExitNotFound {
		i.snaps = slices.Delete(i.snaps, at, at+1)
		i.unsure = i.unsure && len(i.snaps) > 0
	} else {
		i.unsure = true
	}
}

func (k *keeper) resize(i *kept) {
	if k.r.IntN(2) == 0 {
		k.run(false, "schedule", append([]string{"resize", i.id, fmt.Sprintf("DISK_GB:%d", i.gb+1)}, waits...)...)
		i.gb++
		return
	}
	if k.run(false, "schedule", append([]string{"stop", i.id}, waits...)...).ok() {
		k.run(false, "schedule", append([]string{"resize", i.id, fmt.Sprintf("VCPU:%d", 1+k.r.IntN(2))}, waits...)...)
	}
	k.run(false, "schedule", append([]string{"start", i.id}, waits...)...)
}

func (k *keeper) move(i *kept) {
	args := []string{"move", i.id}
	if k.r.IntN(2) == 0 {
		args = append(args, k.w.hosts[k.r.IntN(len(k.w.hosts))].name)
	}
	if k.r.IntN(4) != 0 {
		args = append(args, waits...)
	}
	if !k.run(false, "schedule", args...).ok() {
		k.w.mu.Lock()
		k.w.movers++
		k.w.mu.Unlock()
	}
	if k.r.IntN(6) == 0 {
		k.run(false, "schedule", "move", i.id, "--cancel")
	}
}

// useImages saves an image, adds one from a file, or removes one.
func (k *keeper) useImages(i *kept) {
	name := k.name("img")
	args := []string{"image", "save", i.id, name, "--project", "default"}
	switch dice := k.r.IntN(3); {
	case dice == 0 && len(k.images) > 0 || len(k.images) > 3:
		name, k.images = k.images[0], k.images[1:]
		k.w.disks.name("image", name, func(f *nameFact) { f.doomed = true })
		if k.run(false, "croft", "image", "remove", name, "--project", "default").ok() {
			k.w.disks.name("image", name, func(f *nameFact) { f.removed = true })
		}
		return
	case dice == 1:
		args = []string{"image", "add", name, k.w.image, "--project", "default"}
	case i.shared:
		return
	}
	if k.run(false, "croft", args...).ok() {
		k.w.disks.name("image", name, func(f *nameFact) { f.created = true })
		k.images = append(k.images, name)
	}
}

// useBackups makes a backup, restores one, or removes one.
func (k *keeper) useBackups(i *kept) {
	switch dice := k.r.IntN(10); {
	case len(i.backups) == 0 || dice < 4:
		name := k.name("backup")
		k.w.disks.name("backup", name, func(f *nameFact) { f.instance, f.data = i.id, k.w.disksNow(i.id) })
		if !i.shared && k.backup("create", i.id, name).ok() {
			k.w.disks.name("backup", name, func(f *nameFact) { f.created = true })
			i.backups = append(i.backups, name)
		}
	case dice < 7:
		if len(i.snaps) == 0 && k.run(false, "schedule", append([]string{"stop", i.id}, waits...)...).ok() {
			k.restoreInPlace(i)
		}
		k.run(false, "schedule", append([]string{"start", i.id}, waits...)...)
	case dice < 9:
		k.restoreAs(i)
	default:
		name := i.backups[0]
		i.backups = i.backups[1:]
		k.w.disks.name("backup", name, func(f *nameFact) { f.doomed = true })
		if k.backup("remove", name).ok() {
			k.w.disks.name("backup", name, func(f *nameFact) { f.removed = true })
		}
	}
}

// backup runs a command about backups, which only servers of the API carry out.
func (k *keeper) backup(args ...string) result {
	defer func(env []string) { k.env = env }(k.env)
	k.env = k.w.throughAPI()
	return k.run(false, "croft", append([]string{"backup"}, args...)...)
}

func (k *keeper) restoreInPlace(i *kept) {
	name := i.backups[k.r.IntN(len(i.backups))]
	var data content
	k.w.disks.name("backup", name, func(f *nameFact) { data = f.data })
	if k.backup("restore", name, "--in-place", "--without-volumes").ok() {
		k.w.disks.set(i.id, data)
	} else {
		k.w.disks.loosen(i.id, data)
	}
}

func (k *keeper) restoreAs(i *kept) {
	name := i.backups[k.r.IntN(len(i.backups))]
	copied := &kept{name: k.name("vm"), gb: i.gb}
	if !k.backup("restore", name, "--as", copied.name, "--without-volumes").ok() {
		return
	}
	for _, inst := range k.w.ledger.pick(func(i croft.Instance) bool { return i.Name == copied.name }) {
		copied.id = string(inst.ID)
		k.w.facts.change(copied.id, func(f *fact) {
			f.created, f.wants = true, map[string]bool{"running": true, "stopped": true}
		})
		var data content
		k.w.disks.name("backup", name, func(f *nameFact) { data = f.data })
		k.w.disks.set(copied.id, data)
		k.kept = append(k.kept, copied)
	}
}

// disksNow returns what the disk of an instance may have. The caller holds the mutex of the disks.
func (w *world) disksNow(id string) content {
	f, known := w.disks.all[id]
	if !known {
		return content{"": true}
	}
	all := content{}
	for text := range f.may {
		all[text] = true
	}
	return all
}

// writeImage makes the file of an image that can boot: a boot sector that jumps to itself.
func (w *world) writeImage() {
	w.image = filepath.Join(w.dir, "image.raw")
	disk := make([]byte, 1<<20)
	copy(disk, []byte{0xeb, 0xfe})
	copy(disk[510:], []byte{0x55, 0xaa})
	if err := os.WriteFile(w.image, disk, 0o600); err != nil {
		w.t.Fatal(err)
	}
}
