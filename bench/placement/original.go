package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"croft/internal/testing/freeport"
)

// original is OpenStack's Placement as packaged by Debian: MariaDB with default settings and two uwsgi workers.
type original struct {
	dir      string
	socket   string
	database *process
	web      *process
	url      string
}

func startOriginal(ctx context.Context, dir string) (o *original, err error) {
	o = &original{dir: dir, socket: filepath.Join(dir, "mariadb.sock")}
	defer func() {
		if err != nil {
			o.stop()
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return o, err
	}
	port, err := o.startDatabase(ctx)
	if err != nil {
		return o, err
	}
	conf := filepath.Join(dir, "placement.conf")
	text := fmt.Sprintf(
		"[api]\nauth_strategy = noauth2\n[placement_database]\nconnection = mysql+pymysql://bench@127.0.0.1:%s/placement?charset=utf8\n", port)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return o, err
	}
	// Sync before the workers start: both would do it at once, and fail.
	if err := command(ctx, nil, "placement-manage", "--config-file", conf, "db", "sync"); err != nil {
		return o, err
	}
	return o, o.startWeb(ctx)
}

func (o *original) startDatabase(ctx context.Context) (port string, err error) {
	data := filepath.Join(o.dir, "mariadb")
	if err := command(ctx, nil, "mariadb-install-db", "--no-defaults", "--user=root", "--datadir="+data,
		"--skip-test-db", "--auth-root-authentication-method=normal"); err != nil {
		return "", err
	}
	address, err := freeport.Address("127.0.0.1")
	if err != nil {
		return "", err
	}
	if _, port, err = net.SplitHostPort(address); err != nil {
		return "", err
	}
	o.database, err = start("mariadbd", nil, "mariadbd", "--no-defaults", "--user=root", "--datadir="+data,
		"--socket="+o.socket,
		"--bind-address=127.0.0.1", "--port="+port, "--pid-file="+filepath.Join(o.dir, "mariadb.pid"))
	if err != nil {
		return "", err
	}
	if err := o.database.await(ctx, func(ctx context.Context) error { return o.sql(ctx, "SELECT 1;") }); err != nil {
		return "", err
	}
	return port,
		o.sql(ctx,
			"CREATE DATABASE placement CHARACTER SET utf8; CREATE USER bench@'127.0.0.1'; GRANT ALL ON placement.* TO bench@'127.0.0.1';")
}

func (o *original) startWeb(ctx context.Context) error {
	address, err := freeport.Address("127.0.0.1")
	if err != nil {
		return err
	}
	o.url = "http://" + address
	o.web, err = start("uwsgi", []string{"OS_PLACEMENT_CONFIG_DIR=" + o.dir}, "uwsgi", "--plugin", "python3",
		"--http-socket", address,
		"--wsgi-file", "/usr/bin/placement-api", "--processes", "2", "--threads", "1", "--master", "--lazy-apps",
		"--need-app",
		"--die-on-term", "--disable-logging", "--buffer-size", "65535", "--listen", "128")
	if err != nil {
		return err
	}
	return o.web.await(ctx, answersAt(o.url+"/"))
}

// sql runs statements in the database's command-line client.
func (o *original) sql(ctx context.Context, statements string) error {
	return command(ctx, []byte(statements), "mariadb", "--no-defaults", "--user=root", "--socket="+o.socket)
}

func (o *original) stop() {
	o.web.stop()
	o.database.stop()
}

// command runs a program to completion.
func command(ctx context.Context, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, out)
	}
	return nil
}
