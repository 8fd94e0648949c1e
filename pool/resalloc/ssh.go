package resalloc

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/command"
	"croft/internal/delay"
	"croft/internal/wording"
)

// sshPatience is the time limit of one login attempt, as in resalloc.
const sshPatience = 10 * time.Second

// checkCommand is a livecheck: it succeeds if an SSH login at the address in the resource's data succeeds.
func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resalloc-check-vm-ip",
		Short: "Check that a resource of a pool takes logins over SSH",
		Long: `resalloc-check-vm-ip is for cmd_livecheck in pools.yaml. It logs in over SSH at the first
IP address in the resource's data (RESALLOC_RESOURCE_DATA), as SSH_USER or root, within
ten seconds. Exit code 0: that works; 1: it does not.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := base64.StdEncoding.DecodeString(os.Getenv("RESALLOC_RESOURCE_DATA"))
			if err != nil {
				return croft.Errorf(croft.Invalid, "RESALLOC_RESOURCE_DATA is not base64: %w", err)
			}
			address, found := firstAddress(string(data))
			if !found {
				return failed(fmt.Errorf("the resource's data has no IP address: %.80q", data))
			}
			return failed(trySSH(cmd.Context(), cmp.Or(os.Getenv("SSH_USER"), "root")+"@"+address.String()))
		},
	}
}

// firstAddress finds an IP address among the words of a text.
func firstAddress(text string) (netip.Addr, bool) {
	notInAddress := func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF.:", r) }
	for word := range strings.FieldsFuncSeq(text, notInAddress) {
		word = strings.Trim(word, ".")
		if address, err := netip.ParseAddr(word); err == nil {
			return address, true
		}
		if at, err := netip.ParseAddrPort(word); err == nil {
			return at.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// waitCommand waits until a machine accepts logins.
func waitCommand() *cobra.Command {
	patience := 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "resalloc-wait-for-ssh [USER@]HOST",
		Short: "Wait until a machine takes logins over SSH",
		Long: `resalloc-wait-for-ssh is for cmd_new in pools.yaml: it tries to log in over SSH, as root
unless a user is named, until that works or the time is over. Exit code 0: it works; 1: not.`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := args[0]
			if !strings.Contains(target, "@") {
				target = "root@" + target
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			for {
				err := trySSH(ctx, target)
				if err == nil {
					return nil
				}
				if delay.For(ctx, time.Second) != nil {
					return failed(fmt.Errorf("waited %s: %w", wording.Duration(patience), err))
				}
			}
		},
	}
	cmd.Flags().DurationVar(&patience, "timeout", patience, "how `long` to wait")
	return cmd
}

// trySSH logs in once. It accepts any host key, because a pool's machines are always new, and so are their host keys.
func trySSH(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, sshPatience)
	defer cancel()
	said, err := exec.CommandContext(ctx, "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
		"StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "--", target, "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("log in at %s: %w %s", target, err, strings.TrimSpace(string(said)))
	}
	return nil
}
