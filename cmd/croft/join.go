package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/out"
	"croft/cloud/direct"
	"croft/node/settings"
	"croft/trust"
)

// joinedSettings are the settings of a command on a host that may have joined a cloud,
// and what it joined; nil where it did not, or where --etcd names another. On the
// host where a cloud began that cloud is found, wherever it listens.
func joinedSettings(cmd *cobra.Command, s settings.Settings) (settings.Settings, *trust.Membership, error) {
	if cmd.Flags().Changed(args.EtcdFlag.Flag) {
		return s, nil, nil
	}
	of, err := trust.ReadMembership(s.StateDir)
	if err == nil && of == nil {
		err = direct.AddLocal(s.StateDir, &s.Etcd.EtcdSettings, &s.Placement.PlacementSettings)
	}
	if err != nil || of == nil {
		return s, nil, err
	}
	return settings.Over(of, s), of, nil
}

// tokenFrom is the token that --join names: - for a line of the input, @ and a file.
func tokenFrom(given string, stdin io.Reader, words io.Writer) (string, error) {
	if given != "-" {
		return args.TokenInFile("--join", given, "on the input with --join -")
	}
	if out.IsTerminal(stdin) {
		fmt.Fprint(words, "the token: ")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 1<<16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return line, nil
}
