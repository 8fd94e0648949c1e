package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"croft"
	"croft/client"
	"croft/control/api"
)

// A cloud that answers as the API does.
func serveExample() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.Method + " " + r.URL.Path {
		case "GET /v1/keys":
			fmt.Fprint(w, `{"keys":[{"project":"lab","name":"laptop","line":"ssh-ed25519 AAAA"}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"status":404,"code":"not_found","detail":"there is no key \"desk\""}`)
		}
	}))
}

// Each operation of the API is a method. Its input holds the parameters and the body of the request.
func Example() {
	cloud := serveExample()
	defer cloud.Close()
	c, err := client.New(client.Settings{URL: cloud.URL, Token: "croft_1f3a5b7c9d0e_secret"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	list, err := c.ListKeys(context.Background(), api.InProject{Project: "lab"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range list.Keys {
		fmt.Println(key.Name, key.Line)
	}
	// Output: laptop ssh-ed25519 AAAA
}

// Errors have the kinds of package croft.
func ExampleClient_errors() {
	cloud := serveExample()
	defer cloud.Close()
	c, err := client.New(client.Settings{URL: cloud.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	err = c.RemoveKey(context.Background(), api.KeyNamed{Name: "desk"})
	fmt.Println(errors.Is(err, croft.NotFound), err)
	// Output: true there is no key "desk"
}
