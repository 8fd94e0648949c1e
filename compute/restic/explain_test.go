package restic

import (
	"errors"
	"strings"
	"testing"
)

func TestAFullStoreIsNotAdvisedToRemoveBackups(t *testing.T) {
	t.Parallel()
	said := "Fatal: unable to create lock in backend: write /mnt/backups/locks/0a-tmp-1: no space left on device\n"
	err := explain(said, errors.New("exit status 1"))
	if !strings.Contains(err.Error(), "the store is full: free some space there") ||
		strings.Contains(err.Error(), "or remove backups") {
		t.Error(err)
	}
}
