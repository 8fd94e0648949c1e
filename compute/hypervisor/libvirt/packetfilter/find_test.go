package packetfilter

import "testing"

func TestProgramsAreFoundBesideThePath(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if path, err := find("nft"); err != nil || path != "/usr/sbin/nft" {
		t.Errorf("nft is %q, %v", path, err)
	}
	if path, err := find("croft-no-such-program"); err == nil {
		t.Errorf("what is not there is %q", path)
	}
}
