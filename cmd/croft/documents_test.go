package main

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"croft/cli"
)

// tracked returns the files of the repository that match the patterns, with slashes and relative to its root.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	list := exec.Command("git", append([]string{"ls-files", "--"}, patterns...)...)
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v (the tests want a git checkout)", err)
	}
	return strings.Fields(string(out))
}

// TestTheDocumentsNameCommandsThatExist finds the commands in the code of documents, in units and in example settings.
// Each word and each flag exists, under the name that the help lists. The changelog and the page about upgrades also
// name former commands.
func TestTheDocumentsNameCommandsThatExist(t *testing.T) {
	program := withGrid(cli.Program{})
	roots := map[string]*cobra.Command{}
	for _, name := range []string{"croft", "schedule", "compute", "mdserver", "fission", "itabot", "lockpick"} {
		roots[name] = program.Root(name)
	}
	commands := 0
	for _, file := range tracked(t, "*.md", "*.example", "schedule.yaml", "packages/*", "docker/*") {
		if file == "CHANGELOG.md" || file == "docs/users/upgrade.md" {
			continue
		}
		text, err := os.ReadFile(path.Join("../..", file))
		if err != nil {
			continue // deleted and not committed yet
		}
		for _, words := range commandsIn(string(text), strings.HasSuffix(file, ".md")) {
			if root, is := roots[path.Base(words[0])]; is {
				commands++
				if wrong := wrongWord(root, words[1:]); wrong != "" {
					t.Errorf("%s: %s: %s", file, strings.Join(words, " "), wrong)
				}
			}
		}
	}
	if commands < 500 {
		t.Errorf("the documents have %d commands", commands)
	}
}

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	codeLine  = regexp.MustCompile("(?m)^ {4}(.*)$")
	codeBlock = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	between   = regexp.MustCompile(`\$\(|[;|&()]|<<|>>?|(^|\s)#.*`)
	output    = regexp.MustCompile(`(?m)^.*(----|[0-9] s\b|croft instance hello|server of the API).*$`)
	before    = regexp.MustCompile(`^(\s|\$ |sudo |exec |! |time |if |while |do |then |[A-Z_]+=\S* |ExecStart=)+`)
	word      = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// commandsIn returns the words of each command in the spans, blocks and indented lines of a document, or in the spans
// of another file and its lines that start a program.
func commandsIn(text string, document bool) (all [][]string) {
	var code []string
	if document {
		var blocks []string
		for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, m[2])
		}
		text = codeBlock.ReplaceAllString(text, "")
		for _, m := range codeLine.FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, m[1])
		}
		lines := strings.ReplaceAll(strings.Join(blocks, "\n"), "\\\n", " ")
		code = strings.Split(output.ReplaceAllString(lines, ""), "\n")
	} else {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "ExecStart=") {
				code = append(code, line)
			}
		}
		text = strings.ReplaceAll(text, "croft serve", "`croft serve`")
	}
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		code = append(code, m[1])
	}
	for _, line := range code {
		for _, part := range between.Split(line, -1) {
			part = before.ReplaceAllString(part+" ", "")
			if words := word.FindAllString(part, -1); len(words) > 0 {
				all = append(all, words)
			}
		}
	}
	return all
}

// wrongWord returns what is wrong with the words that follow the name of a program; empty: nothing.
func wrongWord(cmd *cobra.Command, words []string) string {
	for _, given := range words {
		if given == "--" || given == "..." {
			break
		}
		if name, isFlag := strings.CutPrefix(given, "--"); isFlag {
			name = regexp.MustCompile(`^[a-z0-9-]*`).FindString(name)
			if name != "" && name != "help" && name != "version" && cmd.Flag(name) == nil && !below(cmd, name) {
				return "there is no flag --" + name
			}
			continue
		}
		at := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool {
			return c.Name() == given || c.HasAlias(given)
		})
		if at < 0 {
			if cmd.HasSubCommands() && cmd.Args != nil && regexp.MustCompile(`^[a-z-]+$`).MatchString(given) &&
				cmd.Args(cmd, []string{given}) != nil {
				return "there is no command " + given
			}
			continue
		}
		if sub := cmd.Commands()[at]; sub.Name() != given {
			return "the name is " + sub.Name()
		} else {
			cmd = sub
		}
	}
	return ""
}

// below reports whether a command below cmd has a flag: `croft host --json` stands for all of them.
func below(cmd *cobra.Command, flag string) bool {
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool {
		return c.Flags().Lookup(flag) != nil || below(c, flag)
	})
}
