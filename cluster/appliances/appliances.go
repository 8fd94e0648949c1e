// Package appliances holds the appliances that croft ships, each a directory of text: what it is, and how a site builds
// it. A line #include FILE stands for the file, so that scripts are files of their own.
package appliances

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"croft/cluster"
	"croft/internal/acquaint"
)

//go:embed *.sh *.mime */*
var files embed.FS

// Built is an appliance that croft ships, with how sites build it.
type Built struct {
	Appliance       cluster.Appliance
	Implementations []cluster.Implementation
}

// about is appliance.yaml.
type about struct {
	Description string         `yaml:"description"`
	MinSlaves   int            `yaml:"min_slaves"`
	Agent       *cluster.Agent `yaml:"agent"`
}

// All returns the appliances by name, each for the site of this cloud's own hosts, for every project.
func All() []Built {
	var all []Built
	for _, name := range Names() {
		var a about
		d := yaml.NewDecoder(strings.NewReader(read(path.Join(name, "appliance.yaml"))))
		d.KnownFields(true)
		if err := d.Decode(&a); err != nil {
			panic(fmt.Sprintf("appliance %s: %v", name, err)) // it is a part of this program, and tested
		}
		text, _ := Text(name, "local")
		all = append(all, Built{
			Appliance: cluster.Appliance{Name: name, Description: a.Description, Public: true, MinSlaves: a.MinSlaves,
				Agent: a.Agent},
			Implementations: []cluster.Implementation{{Appliance: name, Site: cluster.LocalSite, Template: text,
				Enabled: true}},
		})
	}
	return all
}

// Names lists the appliances by name.
func Names() (names []string) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Text returns how a kind of site builds an appliance: local, or heat for OpenStack. False: it is not shipped for
// those.
func Text(name, kind string) (string, bool) {
	text, err := files.ReadFile(path.Join(name, kind+".yaml"))
	if err != nil {
		return "", false
	}
	return assemble(string(text), kind == "local"), true
}

// shared are the texts of other packages that a line #include may name.
var shared = map[string]string{
	"acquaint/peers": acquaint.Script(acquaint.Master), // where no metadata server of croft answers
	"acquaint/wait":  acquaint.Wait(),
}

func read(name string) string {
	if text, is := shared[name]; is {
		return text
	}
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// include is a line that stands for a file.
var include = regexp.MustCompile(`(?m)^([ \t]*)#include (\S+)\n`)

// assemble puts files in their places, as deep as the lines that stand for them. Local sites replace names in what they
// read; the scripts' own variables are theirs.
func assemble(text string, escape bool) string {
	return include.ReplaceAllStringFunc(text, func(line string) string {
		m := include.FindStringSubmatch(line)
		body := read(m[2])
		if escape {
			body = strings.ReplaceAll(body, "${", "$${")
		}
		body = assemble(body, escape)
		var out strings.Builder
		for l := range strings.Lines(body) {
			if strings.TrimSpace(l) != "" {
				out.WriteString(m[1])
			}
			out.WriteString(l)
		}
		return out.String()
	})
}
