package control_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"croft/control"
	"croft/control/api"
	"croft/control/controltest"
	"croft/tenant/access"
)

// decisions is the expected table by role: r readers, m members, a project-admins, each including higher roles; b
// project-admins only below their own project, o only operators, h everyone but agents, e everyone.
const decisions = `
e getRoot whoami
h getDocument getDefaultQuota getDefinition listImages listAggregates getAggregate
h listResourceTypes listCapabilities listUsers listDistances getDistance listPolicies getPolicy listSizes getSize
h listSites getSite getImage
r listClusters getCluster listClusterEvents listAppliances getAppliance listImplementations getImplementation
m createCluster explainCluster changeCluster deleteCluster addClusterHost removeClusterHost endUse
m makeAccount removeAccount readOutput getSiteHealth bringImage
m listCredentials getCredential createCredential changeCredential removeCredential
m createAppliance changeAppliance removeAppliance addImplementation changeImplementation removeImplementation
o rewrapSecrets createSite changeSite removeSite addImage removeImage
r listClaims getClaim
m createClaim useClaim releaseClaim
r getUsage listUsage
r listPools getPool listPoolResources listTickets getTicket
m openTicket renewTicket closeTicket
a getResourceLog
r listInstances discoverTargets getInstance getInstanceLog getInstanceUsage getScreen watchEvents watchInstance listKeys listProjects getProject getQuota listActions
r listObjects getObject getProperty changeObject setProperty removeProperty checkDefinition
m createInstance destroyInstance startInstance stopInstance rebootInstance ejectInstance resizeInstance rebuildInstance attachConsole attachScreen runCommand explainRequest
m recreateInstance
o moveInstance cancelMove
r listVolumes getVolume
r listCatalogImages getCatalogImage
m createCatalogImage changeCatalogImage removeCatalogImage getImageUpload uploadCatalogImage completeImageUpload
m saveInstance
m createVolume growVolume attachVolume detachVolume removeVolume
r listSnapshots getSnapshot
m createSnapshot rollBackSnapshot removeSnapshot
r listBackups getBackup listUnprotected listBackupStores getBackupStore listBackupSchedules getBackupSchedule
m createBackup checkBackup restoreBackup removeBackup createBackupSchedule removeBackupSchedule
o createBackupStore checkBackupStore removeBackupStore
m keepInstance changeInstance addKey removeKey forwardPort addTag removeTag
h createPageLink
r listMappings
a createProject setMembers setMapping removeMapping listTokens createToken revokeToken
b changeProject removeProject setQuota
o setDefinition removeDefinition pullImage
o setDefaultQuota listHosts getHost drainHost enableHost acceptHost forgetHost emptyHost removeMember listUsages
o listStorages fenceHost takeHostBack listLeftovers removeLeftover
o changePool createAggregate changeAggregate removeAggregate setDistance removeDistance
o createSize changeSize removeSize checkPolicy setPolicy removePolicy getStanding getCrushMap
o listHostImages removeHostImages getInventory getHostCapabilities addCapability removeCapability
o auditCloud repairCloud listInvitations createInvitation revokeInvitation checkQuotas recountQuota
o listPartitions getPartition removePartition listRows exportPartition importPartition
o getCard addPeer removePeer listSigners retireSigner`

// TestEveryRoleMayDoWhatTheSpecificationSays compares the table of operations with the expected one.
func TestEveryRoleMayDoWhatTheSpecificationSays(t *testing.T) {
	t.Parallel()
	letters := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(decisions)) {
		words := strings.Fields(line)
		for _, op := range words[1:] {
			letters[op] = words[0]
		}
	}
	no, yes := access.No, access.Yes
	for _, o := range control.Operations() {
		want := map[string][]access.Decision{
			"e": {yes, yes, yes, yes, yes},
			"h": {yes, yes, yes, yes, no},
			"r": {yes, yes, yes, yes, no},
			"m": {no, yes, yes, yes, no},
			"a": {no, no, yes, yes, no},
			"b": {no, no, access.Below, yes, no},
			"o": {no, no, no, yes, no},
		}[letters[o.ID]]
		if want == nil {
			t.Errorf("the table has %s, which the test does not know", o.ID)
			continue
		}
		delete(letters, o.ID)
		for i, role := range access.Roles {
			if got := o.May.Decide(role); got != want[i] {
				t.Errorf("%s, %s: %s, want %s", o.ID, role, got, want[i])
			}
		}
		if got := o.May.Decide("king"); got != access.Undecided {
			t.Errorf("%s: a role that does not exist has the decision %s", o.ID, got)
		}
	}
	for id := range letters {
		t.Errorf("the table lacks %s", id)
	}
}

// TestTheDocumentHasTheOperationsOfTheTable compares everything that both say about an operation.
func TestTheDocumentHasTheOperationsOfTheTable(t *testing.T) {
	t.Parallel()
	documented := map[string]controltest.Operation{}
	for _, o := range controltest.Operations() {
		documented[o.ID] = o
	}
	for _, o := range control.Operations() {
		d := documented[o.ID]
		delete(documented, o.ID)
		if o.Method != d.Method || o.Path != d.Path || o.Tag != d.Tag || o.Summary != d.Summary || o.Open != d.Open {
			t.Errorf(
				"the table has %s %s, %q, %q, open %t; the document has %+v",
				o.ID,
				o.At,
				o.Tag,
				o.Summary,
				o.Open,
				d,
			)
		}
		if o.In == nil {
			continue
		}
		in := api.InputOf(o.In)
		var have, want []string
		for _, p := range o.Parameters {
			have = append(have, described(p))
		}
		for _, p := range d.Parameters {
			want = append(want, described(p))
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) || in.Body != (d.Body != "") {
			t.Errorf(
				"%s: the table has the parameters %v, body %t; the document has %v, body %q",
				o.ID,
				have,
				in.Body,
				want,
				d.Body,
			)
		}
	}
	for id := range documented {
		t.Errorf("the table lacks %s", id)
	}
}

// described returns everything that the server checks about a parameter.
func described(p api.Parameter) string {
	schema := maps.Clone(p.Schema)
	if items, ok := schema["items"].(map[string]any); ok {
		schema["items"] = checked(items)
	}
	if p.In == "path" { // a name that cannot exist is not found
		schema = map[string]any{}
	}
	return fmt.Sprint(p.In, " ", p.Name, " ", p.Required, " ", checked(schema))
}

// checked returns the parts of a schema that the server checks.
func checked(schema map[string]any) map[string]any {
	schema = maps.Clone(schema)
	maps.DeleteFunc(schema, func(word string, _ any) bool {
		return slices.Contains([]string{"default", "format", "description"}, word)
	})
	return schema
}
