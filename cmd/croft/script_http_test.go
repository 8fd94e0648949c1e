package main

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
)

// free-port NAME sets a variable to an unused port.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	address, err := freeport.Address("127.0.0.1")
	ts.Check(err)
	_, port, err := net.SplitHostPort(address)
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// ask STATUS METHOD URL [REGEXP] sends a request with $TOKEN, or the token admin, and $BEARER, once a server listens
// there and is ready, and requires that status. The body is in the file answer. With REGEXP it repeats the request
// until the body matches, for results that appear shortly after a server is ready.
func ask(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	expected := regexp.MustCompile("(?m)" + strings.Join(args[3:], " "))
	status, body := answerOf(ts, args[1], args[2])
	for deadline := time.Now().Add(patient.Longest); status == 0 || want != status &&
		status == http.StatusServiceUnavailable || want == status && !expected.Match(body); {
		if time.Now().After(deadline) {
			ts.Fatalf("%s %s: no answer like %q: %d %s", args[1], args[2], expected, status, body)
		}
		<-time.After(20 * time.Millisecond)
		status, body = answerOf(ts, args[1], args[2])
	}
	ts.Check(os.WriteFile(ts.MkAbs("answer"), body, 0o600))
	if status != want {
		ts.Fatalf("%s %s: %d, want %d: %s", args[1], args[2], status, want, body)
	}
}

// answerOf returns status 0 without a response.
func answerOf(ts *testscript.TestScript, method, url string) (int, []byte) {
	req, err := http.NewRequest(method, url, nil)
	ts.Check(err)
	token := ts.Getenv("TOKEN")
	if token == "" {
		token = "admin"
	}
	req.Header.Set("X-Auth-Token", token)
	req.Header.Set("OpenStack-API-Version", "placement latest")
	if bearer := ts.Getenv("BEARER"); bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	client := &http.Client{Transport: &http.Transport{
		// other tests check the certificate
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	return resp.StatusCode, body
}
