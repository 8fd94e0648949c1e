package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/cloud/direct"
	"croft/internal/out"
	"croft/internal/userfile"
	"croft/node/settings"
	"croft/placement/transfer"
)

// ExportCommand returns the command croft serve placement export.
func ExportCommand() *cobra.Command {
	flags := []args.HostFlag{args.LogLevelFlag, args.EtcdFlag, args.TokenFlag}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the whole content of a Placement as JSON Lines",
		Long: `Print the whole content of a Placement as JSON Lines: resource classes, traits,
providers with their inventories, and consumers with their claims. It comes from the
etcd at --etcd, or below --data-dir while no server runs there; or, with --from, through
the API of a server, croft's or OpenStack's: at a URL, or as cloud:NAME where a cloud of
clouds.yaml has it in its catalogue.

From etcd it is the state of one revision. Through the API it is the state of one moment
too: records that change while they are read are read again, until none changed. If
claims never pause for long enough, the command says so and prints nothing.`,
		Example: `  croft serve placement export > placement.jsonl
  croft serve placement export --from http://controller:8778 --token @FILE > placement.jsonl`,
	}
	args.AddHostFlags(cmd, flags...)
	dataDir := cmd.Flags().String("data-dir", "", "read the etcd data in this directory; no server may be using it")
	from := cmd.Flags().String("from", "", "read from the Placement API at this URL, or of cloud:NAME")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		s, _, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		source, end, err := openArchive(cmd, s, "--from", direct.Archive{URL: *from, DataDir: *dataDir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		state, err := readState(cmd, source)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		return transfer.Encode(cmd.OutOrStdout(), state)
	}
	return cmd
}

// ImportCommand returns the command croft serve placement import.
func ImportCommand() *cobra.Command {
	flags := []args.HostFlag{args.LogLevelFlag, args.EtcdFlag, args.TokenFlag}
	cmd := &cobra.Command{
		Use:   "import [FILE|-]",
		Short: "Import an export, or the content of another Placement",
		Long: `Import an export, or with --from the content of another Placement, into the etcd at
--etcd, or below --data-dir while no server runs there; or, with --to, through the API
into a server, croft's or OpenStack's: at a URL, or as cloud:NAME where a cloud of
clouds.yaml has it in its catalogue.

Everything is checked first: errors name their line, and then nothing is changed. The
target may be empty, or have a part of the same content: run an interrupted import again
to finish it; a finished one changes nothing. If the target has other content, the
import is refused; with --merge it is added, imported records replace those of the same
key, and others stay. An import into etcd keeps generations. Through an API they are the
server's own, and no other client should claim from the target while the import runs.`,
		Example: `  croft serve placement import placement.jsonl
  croft serve placement import --from cloud:prod
  croft serve placement export | croft serve placement import --to http://controller:8778 --token @FILE -`,
	}
	args.AddHostFlags(cmd, flags...)
	dataDir := cmd.Flags().String("data-dir", "", "write to the etcd data in this directory; no server may be using it")
	from := cmd.Flags().String("from", "", "read from the Placement API at this URL, or of cloud:NAME")
	to := cmd.Flags().String("to", "", "write to the Placement API at this URL, or of cloud:NAME")
	merge := cmd.Flags().Bool("merge", false, "add to the existing content; imported records replace those of the same key")
	cmd.RunE = func(cmd *cobra.Command, given []string) (err error) {
		s, _, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		want, err := readImport(cmd, s, *from, given)
		if err != nil {
			return err
		}
		target, end, err := openArchive(cmd, s, "--to", direct.Archive{URL: *to, DataDir: *dataDir, Write: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		return runImport(cmd, want, target, *merge)
	}
	return cmd
}

// readImport reads the state to be imported, from any source.
func readImport(cmd *cobra.Command, s settings.Settings, from string, args []string) (*transfer.State, error) {
	switch {
	case from != "" && len(args) > 0:
		return nil, croft.Errorf(croft.Invalid, "import: give a FILE or --from, not both")
	case from != "":
		source, end, err := openArchive(cmd, s, "", direct.Archive{URL: from})
		if err != nil {
			return nil, err
		}
		state, err := readState(cmd, source)
		if err != nil {
			err = fmt.Errorf("import: %w", err)
		}
		return state, errors.Join(err, end())
	case len(args) == 0 && out.IsTerminal(cmd.InOrStdin()):
		return nil, croft.Errorf(croft.Invalid, "import: give a FILE, or - for standard input, or --from URL")
	case len(args) == 0 || args[0] == "-":
		return decodeImport("standard input", cmd.InOrStdin())
	}
	file, err := userfile.Open(args[0])
	if errors.Is(err, os.ErrNotExist) {
		return nil, croft.Errorf(croft.NotFound, "import: there is no file %s", args[0])
	}
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	defer file.Close()
	return decodeImport(args[0], file)
}

func decodeImport(name string, r io.Reader) (*transfer.State, error) {
	state, err := transfer.Decode(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("import: %s: %w", name, err)
	}
	return state, nil
}

// readState reads the whole state, and shows progress on a terminal.
func readState(cmd *cobra.Command, source transfer.Source) (*transfer.State, error) {
	bar := out.NewStageBar(cmd.ErrOrStderr())
	defer bar.Close()
	return source.Read(cmd.Context(), bar.Update)
}

func runImport(cmd *cobra.Command, want *transfer.State, target transfer.Target, merge bool) error {
	bar := out.NewStageBar(cmd.ErrOrStderr())
	done, err := transfer.Import(cmd.Context(), want, target, merge, bar.Update)
	bar.Close()
	if err != nil {
		return err
	}
	if done.Empty() {
		fmt.Fprintln(cmd.ErrOrStderr(), "the target has everything already; nothing was changed")
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(),
		"imported %d resource classes, %d traits, %d providers and %d consumers; the rest of the file was there "+
			"already\n",
		len(done.Classes), len(done.Traits), len(done.Providers), len(done.Consumers))
	return nil
}

// openArchive opens the state of a Placement. flag is the flag with its URL; empty: there is no such flag. The caller
// must call end unless there is an error.
func openArchive(cmd *cobra.Command, s settings.Settings, flag string, a direct.Archive) (_ transfer.Target,
	end func() error, err error) {
	etcdGiven := cmd.Flags().Changed("etcd")
	if a.URL != "" && flag != "" && (a.DataDir != "" || etcdGiven) {
		return nil, nil, croft.Errorf(croft.Invalid, "give %s, --etcd or --data-dir, not two of them", flag)
	}
	if a.DataDir != "" && etcdGiven {
		return nil, nil, croft.Errorf(croft.Invalid, "give --etcd or --data-dir, not both")
	}
	a.Etcd, a.Placement = s.Etcd.EtcdSettings, s.Placement.PlacementSettings
	if cmd.Flags().Changed("token") {
		a.Placement.Cloud = ""
	}
	return a.Open(cmd.Context())
}
