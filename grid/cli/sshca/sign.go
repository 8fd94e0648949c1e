package sshca

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"croft"
	"croft/grid/sshca"
	"croft/internal/command"
	"croft/internal/durable"
	"croft/internal/wording"
)

// readKey reads a public key from a file, or from standard input if the name is -.
func readKey(cmd *cobra.Command, name string) (ssh.PublicKey, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "read a public key: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, 1<<20))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read a public key: %w", err)
	}
	key, err := sshca.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}

// hand outputs a certificate: it prints the certificate, or writes it next to the public key, where ssh and sshd look
// for it.
func hand(cmd *cobra.Command, cert *ssh.Certificate, pub string, beside bool) error {
	end := time.Unix(int64(cert.ValidBefore), 0)
	fmt.Fprintf(cmd.ErrOrStderr(), "%s for %s until %s\n", cert.KeyId, strings.Join(cert.ValidPrincipals, ","),
		end.Format(time.DateTime))
	if !beside {
		_, err := fmt.Fprint(cmd.OutOrStdout(), sshca.Text(cert))
		return err
	}
	file := strings.TrimSuffix(pub, ".pub") + "-cert.pub"
	if err := durable.Write(file, []byte(sshca.Text(cert)), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), file)
	return err
}

func checkBeside(pub string, beside bool) error {
	if beside && !strings.HasSuffix(pub, ".pub") {
		return croft.Errorf(croft.Invalid, "--write writes beside a file that ends in .pub, not %s", pub)
	}
	return nil
}

// checkTTL returns an error if the flag gives a time that is not positive, which would otherwise mean the default.
func checkTTL(cmd *cobra.Command, ttl time.Duration) error {
	if cmd.Flags().Changed("ttl") && ttl <= 0 {
		return croft.Errorf(croft.Invalid, "--ttl %s: give a positive time", wording.Duration(ttl))
	}
	return nil
}

func signCommand() *cobra.Command {
	o, r, beside := &options{}, &sshca.Request{}, false
	cmd := &cobra.Command{
		Use:   "sign PUB",
		Short: "Sign a user's certificate",
		Long: `sign signs the public key in the file PUB (- is standard input) for a role that
ca/roles.yaml allows the user, and prints the certificate. It runs where the private
keys are, or --agent reaches an agent that has them.`,
		Args: command.Count(1, 1),
		RunE: run(func(cmd *cobra.Command, given []string) error {
			a, err := o.authority()
			if err == nil {
				err = checkBeside(given[0], beside)
			}
			if err == nil {
				err = checkTTL(cmd, r.TTL)
			}
			if err != nil {
				return err
			}
			if r.Key, err = readKey(cmd, given[0]); err != nil {
				return err
			}
			if r.User == "" {
				if r.User, err = login(false); err != nil {
					return err
				}
			}
			cert, err := a.SignUser(cmd.Context(), *r)
			if err != nil {
				return err
			}
			return hand(cmd, cert, given[0], beside)
		}),
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.Role, "role", "", "`role` of ca/roles.yaml (by default the user's only one)")
	f.StringVar(&r.User, "user", "", "sign for this `user` (by default whoever runs this)")
	command.DurationVar(f, &r.TTL, "ttl", 0, "how long it is valid (`time`; by default the role's, usually 1h)")
	f.BoolVarP(&beside, "write", "w", false, "write it beside PUB, where ssh looks for it, and print the file's name")
	return cmd
}

// login returns the user who runs this command: the process's user or, under sudo, the user who called sudo.
func login(sudo bool) (string, error) {
	if sudo {
		name := os.Getenv("SUDO_USER")
		if name == "" {
			return "", croft.Errorf(croft.Denied, "--sudo: sudo did not start this")
		}
		return name, nil
	}
	me, err := user.Current()
	if err != nil {
		return "", croft.Errorf(croft.Denied, "find who asks: %w", err)
	}
	return me.Username, nil
}

func hostCommand() *cobra.Command {
	o, beside, names, ttl := &options{}, false, []string(nil), time.Duration(0)
	cmd := &cobra.Command{
		Use:   "host NODE PUB",
		Short: "Sign a host key",
		Long: `host signs the host key in the file PUB (- is standard input) of a node, whose name is
in the repository, below nodes/, or not. The certificate stands for the node's name,
its address there, and what --name adds. It is valid for 90 days, at most for 366.`,
		Example: `  ssh-keyscan -t ed25519 web1 | cut -d' ' -f2- | croft sshca host web1 - --name web1.example.org`,
		Args:    command.Count(2, 2),
		RunE: run(func(cmd *cobra.Command, given []string) error {
			a, err := o.authority()
			if err == nil {
				err = checkBeside(given[1], beside)
			}
			if err == nil {
				err = checkTTL(cmd, ttl)
			}
			if err != nil {
				return err
			}
			key, err := readKey(cmd, given[1])
			if err != nil {
				return err
			}
			address, err := addressOf(o.dir, given[0])
			if err != nil {
				return err
			}
			if address != "" && !slices.Contains(names, address) {
				names = append(names, address)
			}
			cert, err := a.SignHost(cmd.Context(), key, given[0], names, ttl)
			if err != nil {
				return err
			}
			return hand(cmd, cert, given[1], beside)
		}),
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&names, "name", nil, "another `name` or address by which it is reached (repeatable)")
	command.DurationVar(f, &ttl, "ttl", 0, "how long it is valid (`time`; by default 90d)")
	f.BoolVarP(&beside, "write", "w", false, "write it beside PUB, where sshd looks for it, and print the file's name")
	return cmd
}

func serveCommand() *cobra.Command {
	o, name, sudo := &options{}, "", false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer one request that came over ssh",
		Long: `serve is the command that sshd runs for those who ask for certificates. Who asks is
who logged in, never what the request says. With keys, one line each in the file
authorized_keys of a user ca:

  restrict,command="croft sshca serve -C /srv/cluster --agent /run/ca/agent --user eva" ssh-ed25519 AAAA...

With PAM or RADIUS, in sshd_config, and with env_keep+=SSH_ORIGINAL_COMMAND for sudo:

  ForceCommand sudo -n -u ca croft sshca serve -C /srv/cluster --agent /run/ca/agent --sudo

They ask with

  ssh ca@HOST sign [--role ROLE] [--ttl 1h] < key.pub > key-cert.pub`,
		Args: command.Count(0, 0),
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			a, err := o.authority()
			if err != nil {
				return err
			}
			if name != "" && sudo {
				return croft.Errorf(croft.Invalid, "--user and --sudo both say who asks: give one")
			}
			who := name
			if who == "" {
				if who, err = login(sudo); err != nil {
					return err
				}
			}
			a.Passphrase = nil // a server has no user to ask
			asked := cmp.Or(os.Getenv("SSH_ORIGINAL_COMMAND"), "nothing")
			cert, err := a.Serve(cmd.Context(), who, asked, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return hand(cmd, cert, "", false)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&name, "user", "", "`who` logged in (by default the user of this process)")
	cmd.Flags().BoolVar(&sudo, "sudo", false, "whoever sudo was called by has logged in")
	return cmd
}
