package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"croft/grid/ssh/sshtest"
)

// A block is a fenced block of a page.
type block struct {
	lang, text string
	file       string // name of the file: the last one in the paragraphs before that ends in .yaml
}

var (
	stepForm = regexp.MustCompile(`(?m)^\*\*([0-9]+)\. `)
	fileForm = regexp.MustCompile("`([a-z/]+\\.yaml)`")
	// Parts that differ in each run: the cluster's ID, and revisions.
	idForm       = regexp.MustCompile(`\bf-[0-9a-f]{8}-`)
	revisionForm = regexp.MustCompile(`git:[0-9a-f]+`)
)

// runPage runs the commands of a page of documentation, and compares their output: `page FILE FROM TO` takes the blocks
// of the steps with these numbers. In a block with lines that start with $, the other lines are the output of the
// command before them, where ... matches anything; in a block without, all lines are commands. A block of YAML is a
// file.
func runPage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: page FILE FROM TO")
	}
	from, err := strconv.Atoi(args[1])
	ts.Check(err)
	to, err := strconv.Atoi(args[2])
	ts.Check(err)
	text, err := os.ReadFile(args[0])
	ts.Check(err)
	steps := stepForm.FindAllStringSubmatchIndex(string(text), -1)
	ran := 0
	for i, at := range steps {
		if number, _ := strconv.Atoi(string(text[at[2]:at[3]])); number < from || number > to {
			continue
		}
		end := len(text)
		if i+1 < len(steps) {
			end = steps[i+1][0]
		}
		for _, b := range blocks(string(text[at[0]:end])) {
			ran++
			b.run(ts)
		}
	}
	if ran == 0 {
		ts.Fatalf("%s has nothing to run in its steps %d to %d", args[0], from, to)
	}
}

func blocks(text string) (all []block) {
	parts := strings.Split(text, "```")
	file := ""
	for i, part := range parts {
		if i%2 == 0 {
			if names := fileForm.FindAllStringSubmatch(part, -1); len(names) > 0 {
				file = names[len(names)-1][1]
			}
			continue
		}
		lang, inside, _ := strings.Cut(part, "\n")
		all = append(all, block{lang, inside, file})
	}
	return all
}

func (b block) run(ts *testscript.TestScript) {
	if b.lang == "yaml" {
		ts.Check(os.WriteFile(ts.MkAbs(b.file), []byte(b.text), 0o644))
		return
	}
	if !strings.Contains("\n"+b.text, "\n$ ") {
		b.text = "$ " + strings.Join(strings.Split(strings.TrimSpace(b.text), "\n"), "\n$ ")
	}
	for _, session := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, want, prints := strings.Cut(strings.TrimRight(session, "\n"), "\n")
		typeCommand(ts, command)
		if got := ts.ReadFile("stdout") + ts.ReadFile("stderr"); prints && !printed(got, want) {
			ts.Fatalf("%s\nprinted:\n%swant:\n%s", command, got, want)
		}
	}
}

// typeCommand runs a line in the shell, as in a terminal: a change of directory persists. croft grid plan exits with 2
// if changes are needed.
func typeCommand(ts *testscript.TestScript, line string) {
	place := ts.MkAbs("../.page-directory")
	err := ts.Exec("bash", "-c", line+"\ncode=$?; pwd > "+place+"; exit $code")
	if err != nil && !strings.HasPrefix(line, "croft grid plan") && !strings.HasPrefix(line, "fission plan") {
		ts.Fatalf("%s: %v\n%s%s", line, err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
	dir, err := os.ReadFile(place)
	ts.Check(err)
	ts.Check(ts.Chdir(strings.TrimSpace(string(dir))))
}

// printed compares lines in any order, since nodes are processed concurrently, and words regardless of the space
// between them.
func printed(got, want string) bool {
	lines := func(text string) (all []string) {
		text = revisionForm.ReplaceAllString(idForm.ReplaceAllString(text, "f-ID-"), "git:REVISION")
		for line := range strings.Lines(text) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
		return all
	}
	have := lines(got)
	for _, line := range lines(want) {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`) + "$"
		if !slices.ContainsFunc(have, regexp.MustCompile(pattern).MatchString) {
			return false
		}
	}
	return true
}

// machines are the machines of a script, started by sshds.
type machines struct{ nodes []*sshtest.Node }

type machinesKey struct{}

func machinesOf(ts *testscript.TestScript) *machines { return ts.Value(machinesKey{}).(*machines) }

// changeMachine disconnects or reconnects a machine: `machine 1 lost`, `machine 1 back`.
func changeMachine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: machine NUMBER lost|back")
	}
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	all := machinesOf(ts).nodes
	if number < 1 || number > len(all) {
		ts.Fatalf("there are %d machines", len(all))
	}
	switch n := all[number-1]; args[1] {
	case "lost":
		n.Suspend()
	case "back":
		n.Resume()
	default:
		ts.Check(fmt.Errorf("machine %d %s: say lost or back", number, args[1]))
	}
}
