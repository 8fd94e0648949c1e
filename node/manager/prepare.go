package manager

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"croft"
	"croft/internal/endpoint"
	files "croft/internal/settings"
	"croft/node"
	"croft/node/settings"
	"croft/pool/server"
)

// poolsFile is the name of the file with the pools.
const poolsFile = "pools.yaml"

// prepare checks what can be checked before anything is created. It returns the file of pools.
func prepare(s *settings.Settings, log *slog.Logger) (file string, tokens *server.PoolTokens, err error) {
	if file, err = findFile(s.Pool.File); err != nil {
		return "", nil, err
	}
	if _, _, err := net.SplitHostPort(s.Pool.Listen); err != nil {
		return "", nil, croft.Errorf(croft.Invalid, "pool.listen: %q is not IP:PORT", s.Pool.Listen)
	}
	if (s.Pool.Cert == "") != (s.Pool.Key == "") {
		return "", nil, croft.Errorf(croft.Invalid, "pool.cert and pool.key belong together: set both or neither")
	}
	if page := s.Pool.Page; page != "" {
		if u, err := url.Parse(page); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", nil, croft.Errorf(croft.Invalid, "pool.page: %q is no address of a page: write one such as "+
				"https://cloud.example:8781/ui/pools", page)
		}
	}
	if s.Pool.Tokens != "" {
		tokens, err = server.LoadTokens(s.Pool.Tokens, log)
		return file, tokens, err
	}
	if !endpoint.IsLoopback(s.Pool.Listen) && !s.Pool.Insecure {
		return "", nil,
			croft.Errorf(croft.Invalid, "pool.listen: whoever reaches %s could take everything that the pools have; "+
				"make tokens (croft token create --for pool) and name their file with --tokens, or, in a network that only your machines are in, --insecure", s.Pool.Listen)
	}
	return file, nil, nil
}

// findFile returns the configured file of pools, or the first on the search path.
func findFile(file string) (string, error) {
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return "", croft.Errorf(croft.Invalid, "pool.file: %w", err)
		}
		return filepath.Abs(file)
	}
	for _, dir := range files.SearchPath() {
		file := filepath.Join(dir, poolsFile)
		if _, err := os.Stat(file); err == nil {
			if err := files.CheckOwner(file); err != nil {
				return "", err
			}
			return filepath.Abs(file)
		}
	}
	return "", croft.Errorf(croft.Invalid, "%s is in none of %s; write one (docs/users/pools.md), or name it with --pools",
		poolsFile, strings.Join(files.SearchPath(), ", "))
}

// listen opens the address for clients, with TLS if there is a certificate.
func listen(ctx context.Context, s *settings.Settings) (net.Listener, error) {
	var cert tls.Certificate
	if s.Pool.Cert != "" {
		var err error
		if cert, err = tls.LoadX509KeyPair(s.Pool.Cert, s.Pool.Key); err != nil {
			return nil, croft.Errorf(croft.Invalid, "pool.cert and pool.key: %w", err)
		}
	}
	l, err := node.Listen(ctx, s.Pool.Listen, "pool.listen")
	if err != nil || s.Pool.Cert == "" {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"},
		MinVersion: tls.VersionTLS12}), nil
}
