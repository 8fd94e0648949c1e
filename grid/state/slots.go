package state

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// loadSlots reads alloc/.
func (l *loading) loadSlots() {
	byPath := make(map[string]*Node, len(l.s.Leaves))
	for _, n := range l.s.Leaves {
		byPath[n.Path] = n
	}
	l.files.walk("alloc", "", &l.problems, func(dir string, in []entry) {
		job := strings.TrimPrefix(dir, "alloc/")
		j := l.s.Job(job)
		for _, e := range in {
			slot := Slot{Job: job, Link: e.path}
			at := Position{File: e.path}
			number, err := slotNumber(e.name)
			if !e.link {
				l.problems.add(at, "%s", l.noLink(e.path, "a slot is a symbolic link to a node, and this is a file"))
				continue
			}
			if err != nil || dir == "alloc" {
				l.problems.add(at, "%q is no slot of a job: slots are alloc/JOB/NUMBER, from 0", e.name)
				continue
			}
			slot.Number = number
			if slot.Target, err = target(e.path, e.to); err == nil {
				slot.Node, err = l.nodeOf(slot.Target, byPath)
			}
			if err != nil {
				l.problems.add(at, "%s", err)
				continue
			}
			l.slot(j, slot)
		}
	})
	for _, j := range l.s.Jobs {
		l.gaps(j)
	}
}

// slot adds a slot, and warns of what grid place will do about it.
func (l *loading) slot(j *Job, s Slot) {
	at := Position{File: s.Link}
	switch {
	case s.Node == nil:
		l.warn(at, "the node %s was removed: grid place moves the slot to another node", nodeName(s.Target))
	case s.Node.Path != s.Target:
		l.warn(at, "the node %s is in %s now: grid place corrects the link", s.Node.Name, path.Dir(s.Node.Path))
	}
	if j == nil {
		l.s.Orphans = append(l.s.Orphans, s)
		l.warn(at, "there is no job %s any more: grid apply stops it there, and grid place removes the link", s.Job)
		return
	}
	j.Slots = append(j.Slots, s)
}

func (l *loading) gaps(j *Job) {
	slices.SortFunc(j.Slots, func(a, b Slot) int { return cmp.Compare(a.Number, b.Number) })
	for i, s := range j.Slots {
		if s.Number != i {
			l.warn(Position{File: s.Link}, "the job %s has this slot, and none of the number %d: grid place fills the gap",
				j.Name, i)
			return
		}
	}
}

// slotNumber parses the name of a slot.
func slotNumber(name string) (int, error) {
	n, err := strconv.Atoi(name)
	if err != nil || n < 0 || n > 10*MaxReplicas || strconv.Itoa(n) != name {
		return 0, errors.New("no slot")
	}
	return n, nil
}

func nodeName(file string) string { return strings.TrimSuffix(path.Base(file), ".yaml") }

// nodeOf returns the node that a slot's link leads to: by the path of the node's file, or else by the node's name,
// since its file may have moved. nil: the node is gone.
func (l *loading) nodeOf(to string, byPath map[string]*Node) (*Node, error) {
	if n := byPath[to]; n != nil {
		return n, nil
	}
	switch {
	case strings.HasPrefix(to, "jobs/"):
		return nil, errors.New("the link leads to a job, " + to + ": a slot leads to a node")
	case l.files.isLink(to):
		return nil, errors.New("the link leads to " + to + ", which is a link too: a slot leads to the file of a node")
	case l.files.isDir(to):
		return nil, errors.New("the link leads to " + to + ", a directory: a slot leads to the file of a node")
	case !strings.HasPrefix(to, "nodes/") || !strings.HasSuffix(to, ".yaml") || !validName.MatchString(nodeName(to)):
		return nil, errors.New("the link leads to " + to + ", which is no node")
	}
	return l.s.Node(nodeName(to)), nil
}

func (f files) isLink(name string) bool { return f.mode(name)&fs.ModeSymlink != 0 }

func (f files) isDir(name string) bool { return f.mode(name).IsDir() }

// mode returns the file type of a name; 0: it does not exist.
func (f files) mode(name string) fs.FileMode {
	info, err := f.root.Lstat(name)
	if err != nil {
		return 0
	}
	return info.Mode().Type()
}
