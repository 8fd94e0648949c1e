package node

import (
	"strings"
	"testing"

	"croft"
)

func TestGuestsRunOnX86Alone(t *testing.T) {
	if err := checkMachine("amd64"); err != nil {
		t.Error(err)
	}
	err := checkMachine("arm64")
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "it is arm64") ||
		!strings.Contains(err.Error(), "not supported") {
		t.Errorf("on arm64: %v", err)
	}
}
