// Package appliances holds the appliances that croft ships. Each is a directory of texts: its description, and its
// implementation for each type of site. A line "#include FILE" in a text is replaced by the file, so that scripts are
// separate files.
package appliances

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"gopkg.in/yaml.v3"

	"croft/cluster"
	"croft/internal/acquaint"
	"croft/internal/lazyregexp"
)

//go:embed *.sh *.mime */*
var files embed.FS

// Built is an appliance that croft ships, with its implementations.
type Built struct {
	Appliance       cluster.Appliance
	Implementations []cluster.Implementation
}

// about is the content of appliance.yaml.
type about struct {
	Description string         `yaml:"description"`
	MinSlaves   int            `yaml:"min_slaves"`
	Agent       *cluster.Agent `yaml:"agent"`
}

// All returns the shipped appliances by name, with their implementations for the local site. All projects may use them.
func All() []Built {
	var all []Built
	for _, name := range Names() {
		var a about
		d := yaml.NewDecoder(strings.NewReader(read(path.Join(name, "appliance.yaml"))))
		d.KnownFields(true)
		if err := d.Decode(&a); err != nil {
			panic(fmt.Sprintf("appliance %s: %v", name, err)) // embedded in this program, and tested
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
		panic(err) // embedded
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Text returns the implementation of an appliance for a kind of site: local, or heat for OpenStack. False: croft ships
// none.
func Text(name, kind string) (string, bool) {
	text, err := files.ReadFile(path.Join(name, kind+".yaml"))
	if err != nil {
		return "", false
	}
	return assemble(string(text), kind == "local"), true
}

// shared are texts of other packages that an #include line may name.
var shared = map[string]string{
	"acquaint/peers": acquaint.Script(acquaint.Master), // for clusters without a metadata server of croft
	"acquaint/wait":  acquaint.Wait(),
}

func read(name string) string {
	if text, is := shared[name]; is {
		return text
	}
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // embedded
	}
	return string(text)
}

// include matches an #include line.
var include = lazyregexp.New(`(?m)^([ \t]*)#include (\S+)\n`)

// assemble replaces #include lines by the named files, indented like the line. Local sites expand ${NAME} in templates;
// with escape, the variables of included scripts are escaped from that.
func assemble(text string, escape bool) string {
	return include.Get().ReplaceAllStringFunc(text, func(line string) string {
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
