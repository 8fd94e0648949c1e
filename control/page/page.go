// Package page serves the page of the cloud: HTML over the operations of the API, for people with a browser. Each view
// calls the operations as any client does, with the credentials of the browser's session, so the API alone decides who
// may do what. Every view works without scripts; scripts add live updates and the keyboard.
package page

import (
	"cmp"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"croft"
	"croft/control/page/session"
	"croft/internal/lazyregexp"
	"croft/tenant/access/oidc"
)

// Root is the path of the page; everything else of the page is below it.
const Root = "/ui"

// Config configures a Server. API and Sessions are required.
type Config struct {
	API      http.Handler // of the API that the page calls
	Sessions session.Store
	Log      *slog.Logger // discards by default
	Address  string       // of the server, as in links: http://127.0.0.1:8781
	Issuer   *oidc.Issuer // at which users log in; nil: the cloud has none
	Public   string       // address at which browsers reach the server; empty: the one in their requests
}

// Server serves the page.
type Server struct {
	log      *slog.Logger
	address  string
	api      *http.Client
	sessions session.Sessions
	issuer   *oidc.Issuer
	public   string
	secured  string // host of Public, if a proxy there ends TLS
	streams  streams
	pictures chan struct{} // full while pictures are made
	tryTime  time.Duration // how long an answer may take that a user tries in the reference
}

// New returns a server of the page. It starts nothing.
func New(c Config) (*Server, error) {
	if c.API == nil || c.Sessions == nil {
		return nil, croft.Errorf(croft.Invalid, "page: API and Sessions are required")
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Server{log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		address:  cmp.Or(c.Public, c.Address),
		issuer:   c.Issuer,
		tryTime:  tryTime,
		public:   c.Public,
		secured:  securedHost(c.Public),
		api:      &http.Client{Transport: within{c.API}, CheckRedirect: stay},
		sessions: session.Sessions{Store: c.Sessions},
		pictures: make(chan struct{}, pictures)}, nil
}

// Handler serves the page at Root and below it, and leads browsers from / to it.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, Root, http.StatusSeeOther)
	})
	mux.HandleFunc("GET "+Root+"/assets/{file}", serveAsset)
	mux.HandleFunc("GET "+Root+"/login", s.showLogin)
	mux.HandleFunc("POST "+Root+"/login", s.login)
	if s.issuer != nil {
		mux.HandleFunc("GET "+issuerStart, s.startAtIssuer)
		mux.HandleFunc("GET "+issuerBack, s.returnFromIssuer)
	}
	mux.HandleFunc("POST "+Root+"/choose", s.chooseProject)
	mux.HandleFunc("GET "+Root+"/link/{link}", s.follow)
	mux.HandleFunc("GET "+docsRoot, s.showDocument)
	mux.HandleFunc("GET "+docsRoot+"/{document}", s.showDocument)
	for _, v := range views() {
		mux.HandleFunc(v.at, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, v.do) })
	}
	mux.HandleFunc(Root+"/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, croft.Errorf(croft.NotFound, "there is no such page"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		if err := checkOrigin(r); err != nil {
			s.fail(w, r, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// view is a page of the page, for callers who are logged in.
type view struct {
	at string // method and path
	do func(*visit) error
}

// views lists the views. The first part of a path below Root is the section of the navigation.
func views() []view {
	all := []view{
		{"GET " + Root, (*visit).home},
		{"POST " + Root + "/logout", (*visit).logout},
		{"POST " + Root + "/theme", (*visit).chooseTheme},
		{"GET " + Root + "/keys", (*visit).showKeyboard},
		{"GET " + Root + "/instances", (*visit).listInstances},
		{"GET " + Root + "/instances/events", (*visit).followInstances},
		{"POST " + Root + "/instances/bulk", (*visit).bulk},
		{"GET " + Root + "/instances/new", (*visit).newInstance},
		{"POST " + Root + "/instances/new", (*visit).createInstance},
		{"POST " + Root + "/instances/new/check", (*visit).checkNew},
		{"GET " + Root + "/instances/{id}", (*visit).showInstance},
		{"GET " + Root + "/instances/{id}/log", (*visit).showLog},
		{"GET " + Root + "/instances/{id}/console", (*visit).showConsole},
		{"GET " + Root + "/instances/{id}/console/socket", (*visit).attachConsole},
		{"GET " + Root + "/instances/{id}/screen", (*visit).showScreen},
		{"GET " + Root + "/instances/{id}/screen/socket", (*visit).attachScreen},
		{"GET " + Root + "/instances/{id}/screen/picture", (*visit).showPicture},
		{"GET " + Root + "/instances/{id}/{action}", (*visit).confirm},
		{"POST " + Root + "/instances/{id}/{action}", (*visit).act},
		{"GET " + Root + "/hosts", (*visit).showHosts},
		{"GET " + Root + "/hosts/events", (*visit).followHosts},
		{"GET " + Root + "/hosts/{id}", (*visit).showHost},
		{"GET " + Root + "/hosts/{id}/pull", (*visit).pull},
		{"POST " + Root + "/hosts/{id}/pull", (*visit).pull},
		{"GET " + Root + "/hosts/{id}/{action}", (*visit).confirmHost},
		{"POST " + Root + "/hosts/{id}/{action}", (*visit).actOnHost},
		{"POST " + Root + "/hosts/{id}/images", (*visit).removeUnused},
		{"GET " + Root + "/hosts/{id}/leftovers/{instance}", (*visit).confirmLeftover},
		{"POST " + Root + "/hosts/{id}/leftovers/{instance}", (*visit).removeLeftover},
		{"GET " + Root + "/audit", (*visit).showAudit},
		{"POST " + Root + "/audit", (*visit).repair},
		{"GET " + Root + "/clusters/{id}", (*visit).showCluster},
		{"GET " + Root + "/policies", (*visit).listPolicies},
		{"POST " + Root + "/policies", (*visit).changePolicy},
		{"GET " + Root + "/log", (*visit).listActions},
		{"GET " + Root + "/more", (*visit).more},
		{"GET " + Root + "/try/{operation}", (*visit).tryOperation},
		{"POST " + Root + "/try/{operation}", (*visit).tryOperation},
		{"GET " + Root + "/dashboard", (*visit).showDashboard},
		{"GET " + Root + "/project", (*visit).showProject},
		{"POST " + Root + "/project/new", (*visit).createProject},
		{"POST " + Root + "/project/members", (*visit).setMember},
		{"POST " + Root + "/project/tokens", (*visit).createToken},
		{"POST " + Root + "/project/keys", (*visit).addKey},
		{"POST " + Root + "/project/quota", (*visit).setLimit},
		{"GET " + Root + "/project/usage.csv", (*visit).exportUsage},
		{"GET " + Root + "/project/{what}/remove", (*visit).confirmRemoval},
		{"POST " + Root + "/project/{what}/remove", (*visit).removeOfProject},
	}
	for _, l := range listings() {
		all = append(all, view{"GET " + Root + "/" + l.Path, l.show})
		if l.live {
			all = append(all, view{"GET " + Root + "/" + l.Path + "/events", l.follow})
		}
	}
	for _, f := range forms() {
		all = append(all, view{"GET " + Root + f.At, f.serve}, view{"POST " + Root + f.At, f.serve})
	}
	return all
}

// policy is the Content-Security-Policy of every answer.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// protect sets the headers of every answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

var otherOrigins = http.NewCrossOriginProtection()

// checkOrigin refuses changes that other origins ask for, and tokens in addresses. Denied.
func checkOrigin(r *http.Request) error {
	if err := otherOrigins.Check(r); err != nil {
		return croft.Errorf(croft.Denied, "a web page from elsewhere asks for this: %w", err)
	}
	if _, err := url.QueryUnescape(r.URL.RawQuery); err != nil {
		return croft.Errorf(croft.Invalid, "the address cannot be read: %w", err)
	}
	return checkAddress(r.URL)
}

// Parts of addresses that are tokens: a parameter for one, a token of the cloud, and one of an issuer.
var (
	tokenInput  = lazyregexp.New(`(?i)[?&;](?:[a-z0-9]+[_.-])*token(?:[=&;]|$)`)
	secretForm  = lazyregexp.New(`(?i)croft_[0-9a-f]{12}_`)
	issuedForm  = lazyregexp.New(`eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.`)
	escapedForm = lazyregexp.New(`%[0-9A-Fa-f]{2}`)
)

// mostEscapes is how often an address may be escaped. Browsers escape a part of it once, and once more within another.
const mostEscapes = 8

// checkAddress refuses tokens in an address, however often they are escaped. Denied, Invalid.
func checkAddress(u *url.URL) error {
	address := u.RequestURI()
	for range mostEscapes {
		// A code with which the issuer leads a browser back may have any form.
		if tokenInput.MatchString(address) || secretForm.MatchString(address) ||
			issuedForm.MatchString(address) && u.Path != issuerBack {
			return croft.Errorf(croft.Denied, "there is a token in the address, and addresses are kept in histories and logs: "+
				"revoke it, and paste a new one into the form")
		}
		plain := escapedForm.Get().ReplaceAllStringFunc(address, func(code string) string {
			raw, err := hex.DecodeString(code[1:])
			if err != nil {
				return code // the form has digits only
			}
			return string(raw)
		})
		if plain == address {
			return nil
		}
		address = plain
	}
	return croft.Errorf(croft.Invalid, "the address is escaped more than %d times", mostEscapes-1)
}

// ownOrigin refuses a stream for a page of another origin, or none. Denied.
func ownOrigin(r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return croft.Errorf(croft.Denied, "only the page itself follows changes: this request is from %.40q", site)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return croft.Errorf(croft.Denied, "only the page itself follows changes: this request is from %.80q", origin)
		}
	}
	return nil
}

// answerTime bounds the work for a view.
const answerTime = 30 * time.Second
