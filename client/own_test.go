package client_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/control/controltest"
)

// full is a disk without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }
func (full) Read([]byte) (int, error)  { return 0, errFull }

func TestAnErrorOfTheCallersOwnIsNotTheClouds(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	c := as(t, url, "operator")
	_, err := c.ExportPartition(t.Context(), api.Export{}, full{})
	if err != errFull || croft.KindOf(err) != "" {
		t.Errorf("an export to a full disk: %v", err)
	}
	if _, _, err = c.ImportPartition(t.Context(), api.Import{}, io.MultiReader(full{})); err != errFull {
		t.Errorf("an import of what cannot be read: %v", err)
	}
}

func TestNoPasswordOfAnAddressIsPrinted(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://u:s3cret@127.0.0.1:1/", "https://u:s3cret@cloud.example", "ftp://u:s3cret@h",
		"https://u:s3cret@h/%zz", "http://s3cret@cloud.example"} {
		_, err := client.New(client.Settings{URL: url, Token: "t"})
		if croft.KindOf(err) != croft.Invalid || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
