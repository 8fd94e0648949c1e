package requests

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/cluster"
)

// Limits of an agent: it runs on a user's machine, and is not trusted.
const (
	agentPatience = 10 * time.Second
	maxAnswer     = 64 << 10
	maxLogin      = 1 << 10
	agentPort     = 80
	agentPath     = "/new_account/"
)

// agents calls the agents of appliances.
type agents struct{ client *http.Client }

// newAgents returns a caller that follows no redirects and uses no proxy, so that it connects only to the address of a
// master.
func newAgents(dial func(ctx context.Context, network, address string) (net.Conn, error)) agents {
	return agents{&http.Client{
		Timeout: agentPatience,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer,
			ResponseHeaderTimeout: agentPatience},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// login asks the agent on a master to create an account. Unavailable: it does not, or its response is invalid.
func (a agents) login(ctx context.Context, masterIP string, agent cluster.Agent) (cluster.Login, error) {
	target, err := agentURL(masterIP, agent)
	if err != nil {
		return cluster.Login{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return cluster.Login{}, croft.Errorf(croft.Invalid, "the agent's path %.80q cannot be called", agent.Path)
	}
	request.Header.Set("Accept", "application/json")
	answer, err := a.client.Do(request)
	if err != nil {
		if known, is := errors.AsType[*url.Error](err); is {
			err = known.Err // without the URL, which the message has already
		}
		return cluster.Login{}, cluster.Away("the agent at %s does not answer: %s", target, err)
	}
	defer func() { _ = answer.Body.Close() }() // the body is not read any more
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		return cluster.Login{}, cluster.Away("the agent at %s answers %d", target, answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return cluster.Login{}, cluster.Away("the agent at %s stopped answering: %s", target, err)
	}
	if len(body) > maxAnswer {
		return cluster.Login{}, cluster.Away("the agent at %s answers more than %d bytes", target,
			maxAnswer)
	}
	return readLogin(target, body)
}

// readLogin parses the response of an agent. Errors quote nothing of it, since it contains a password.
func readLogin(target string, body []byte) (cluster.Login, error) {
	var login struct{ Username, Password string }
	if json.Unmarshal(body, &login) != nil || login.Username == "" || login.Password == "" {
		return cluster.Login{}, cluster.Away("the agent at %s does not answer JSON with username and password", target)
	}
	if len(login.Username) > maxLogin || len(login.Password) > maxLogin {
		return cluster.Login{}, cluster.Away("the agent at %s answers a name or password of more than %d bytes", target,
			maxLogin)
	}
	return cluster.Login{Username: login.Username, Password: cluster.NewSecret(login.Password), Made: true}, nil
}

// agentURL returns the URL of an agent. Its host is only the IP address, whatever else the site returned.
func agentURL(masterIP string, agent cluster.Agent) (string, error) {
	ip, err := netip.ParseAddr(masterIP)
	if err != nil || !callable(ip) {
		return "", cluster.Away("croft does not call the address of the master, %.80q", masterIP)
	}
	port, path := agent.Port, agent.Path
	if port == 0 {
		port = agentPort
	}
	if path == "" {
		path = agentPath
	}
	if port < 1 || port > 65535 || !strings.HasPrefix(path, "/") {
		return "", croft.Errorf(croft.Invalid, "the agent's port %d or path %.80q is not right", port, path)
	}
	return "http://" + net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(port)) + path, nil
}

// forbidden are addresses that lead to this server or to its own metadata, in addition to the ranges that netip knows.
var forbidden = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),         // this host
	netip.MustParsePrefix("240.0.0.0/4"),       // reserved, and broadcast
	netip.MustParsePrefix("64:ff9b::/96"),      // IPv4 addresses behind a translator
	netip.MustParsePrefix("2002::/16"),         // likewise, through a tunnel
	netip.MustParsePrefix("fd00:ec2::254/128"), // metadata
}

// callable reports whether an address can belong to a machine of a cluster. Private addresses can: clusters often have
// them.
func callable(ip netip.Addr) bool {
	if ip.Zone() != "" {
		return false
	}
	ip = ip.Unmap()
	for _, p := range forbidden {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() // not loopback, link-local, multicast or unspecified
}
