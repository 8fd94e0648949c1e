package settings

import (
	"croft"
)

// Keystone configures which tokens the embedded Placement accepts besides the administrator's.
type Keystone struct {
	Cloud          string   `yaml:"cloud"`
	Only           bool     `yaml:"only"`
	ReaderProjects []string `yaml:"reader_projects"`
}

func (s Keystone) validate() error {
	if s.Cloud == "" && (s.Only || len(s.ReaderProjects) > 0) {
		return croft.Errorf(croft.Invalid,
			"placement.keystone.only and reader_projects are about the tokens of a Keystone: name it in placement.keystone.cloud")
	}
	return nil
}
