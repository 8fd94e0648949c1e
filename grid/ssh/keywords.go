package ssh

import "strings"

// several has the keywords whose settings add up.
var several = map[string]bool{"identityfile": true, "certificatefile": true}

// used has the keywords that decide how a machine is reached.
var used = words(`hostname port user identityfile certificatefile identitiesonly identityagent proxyjump
	userknownhostsfile globalknownhostsfile hostkeyalias connecttimeout addressfamily stricthostkeychecking
	ignoreunknown ciphers macs kexalgorithms hostkeyalgorithms pubkeyacceptedalgorithms pubkeyacceptedkeytypes
	casignaturealgorithms requiredrsasize`)

// aside has the keywords without effect here: of terminals, forwarding, other ways to log in, and what croft has
// settings of its own for. Keys of hosts are verified whatever is said about that.
var aside = words(`addkeystoagent batchmode canonicaldomains canonicalizefallbacklocal canonicalizemaxdots
	canonicalizepermittedcnames challengeresponseauthentication channeltimeout checkhostip clearallforwardings
	compression connectionattempts controlmaster controlpath controlpersist dynamicforward enableescapecommandline
	enablesshkeysign escapechar exitonforwardfailure fingerprinthash forkafterauthentication forwardagent forwardx11
	forwardx11timeout forwardx11trusted gatewayports gssapiauthentication gssapidelegatecredentials
	gssapiclientidentity gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns
	hashknownhosts hostbasedacceptedalgorithms hostbasedauthentication hostbasedkeytypes ipqos
	kbdinteractiveauthentication kbdinteractivedevices localcommand localforward loglevel logverbose
	nohostauthenticationforlocalhost numberofpasswordprompts obscurekeystroketiming passwordauthentication
	permitlocalcommand permitremoteopen preferredauthentications proxyusefdpass rekeylimit remotecommand remoteforward
	requesttty sendenv serveralivecountmax serveraliveinterval sessiontype setenv stdinnull streamlocalbindmask
	streamlocalbindunlink syslogfacility tcpkeepalive tunnel tunneldevice updatehostkeys useprivilegedport
	usekeychain verifyhostkeydns versionaddendum visualhostkey warnweakcrypto xauthlocation`)

// neutral has the values with which keywords that croft cannot honor change nothing.
var neutral = map[string]string{
	"bindaddress": none, "bindinterface": none, "canonicalizehostname": "no",
	"knownhostscommand": none, "pkcs11provider": none, "proxycommand": none, "pubkeyauthentication": "yes",
	"revokedhostkeys": none, "securitykeyprovider": "internal", "tag": none,
}

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// check reports the first setting that would change how a machine is reached and that croft cannot honor.
func (l *lookup) check() error {
	var bad *setting
	for name, all := range l.found {
		s := all[0]
		if used[name] || aside[name] {
			continue
		}
		if v, is := neutral[name]; is && len(s.args) == 1 && strings.EqualFold(s.args[0], v) {
			continue
		}
		if l.ignored(name) {
			continue
		}
		if bad == nil || s.file < bad.file || s.file == bad.file && s.line < bad.line {
			bad = &s
		}
	}
	if bad == nil {
		return nil
	}
	return bad.errorf("croft cannot honor %s for %s; leave it out for this host, or put it into a Host block of others",
		bad.name, l.host)
}

// ignored reports whether IgnoreUnknown names a keyword that OpenSSH does not know either.
func (l *lookup) ignored(name string) bool {
	patterns := l.found["ignoreunknown"]
	_, known := neutral[name]
	return !known && len(patterns) > 0 &&
		matchWords(strings.Split(strings.ToLower(strings.Join(patterns[0].args, ",")), ","), name)
}
