package login

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/internal/endpoint"
)

// PageCommand returns the command croft page.
func PageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Open the page of the cloud in a browser, logged in",
		Long: `page makes a link that logs one browser in to the page of the cloud, with your own
rights, and opens it in the browser of a desktop. Elsewhere it prints the link. The link
works once, within a minute.

With a token, the browser's session ends with the token. On the machine of the cloud, the
local socket suffices: you get a token of an operator for the session, which expires after
12 hours and is listed by croft token list --for api.

A link to this machine has a name such as croft-....localhost, which browsers look up
here. Other pages on this machine, such as a guest's behind schedule port-forward, get the
cookies of 127.0.0.1 and localhost, and not those of that name. For a browser that does
not know the name, write 127.0.0.1 in its place.`,
		Example: `  croft page
  croft page --print`,
	}
	show := cmd.Flags().Bool("print", false, "print the link, and open no browser")
	open := func(ctx context.Context, c *args.Client) error {
		link, err := c.CreatePageLink(ctx)
		if err != nil {
			return err
		}
		// the address by which this machine reaches the cloud
		if base := c.Settings.URL; !strings.HasPrefix(base, "unix:") && base != "" {
			u, err := url.Parse(link.URL)
			if err != nil {
				return croft.Errorf(croft.Unavailable, "the cloud answers with a link that cannot be read: %w", err)
			}
			link.URL = strings.TrimRight(base, "/") + u.Path
		}
		if link.URL, err = apart(link.URL); err != nil {
			return err
		}
		opener, err := exec.LookPath("xdg-open")
		if *show || err != nil || os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "" || c.WantsData() {
			fmt.Fprintf(cmd.ErrOrStderr(), "open this link in a browser, once, before %s:\n",
				link.Expires.Local().Format(time.TimeOnly))
			return c.PrintText(link, link.URL+"\n")
		}
		if err := exec.CommandContext(ctx, opener, link.URL).Run(); err != nil {
			return croft.Errorf(croft.Unavailable, "open a browser: %w; croft page --print prints the link", err)
		}
		return nil
	}
	cmd.Args = command.Count(0, 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return args.WithServer(cmd, open) }
	args.AddCloudFlags(cmd.Flags())
	return cmd
}

// apart returns a link to this machine with a random name, so that a page at another port, such as a guest's, does
// not get the session.
func apart(link string) (string, error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "the cloud answers with a link that cannot be read: %w", err)
	}
	if u.Scheme == "http" && endpoint.IsLoopback(net.JoinHostPort(u.Hostname(), u.Port())) {
		u.Host = net.JoinHostPort(endpoint.OwnName(), u.Port())
	}
	return u.String(), nil
}
