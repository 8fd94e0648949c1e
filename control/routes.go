package control

import (
	"net/http"

	"croft/control/api"
	"croft/internal/httpapi"
)

// operations maps each operation of the document to its handler. An error that a handler returns is the answer, so it
// must be returned before anything is written. To add an operation, add it to the document and its handler here.
var operations = map[string]func(*call) error{
	"listPools":           listPools,
	"getPool":             getPool,
	"listPoolResources":   listPoolResources,
	"getResourceLog":      getResourceLog,
	"listTickets":         listTickets,
	"openTicket":          openTicket,
	"getTicket":           getTicket,
	"renewTicket":         renewTicket,
	"closeTicket":         closeTicket,
	"getDocument":         getDocument,
	"getRoot":             getRoot,
	"whoami":              whoami,
	"listInstances":       (*call).listInstances,
	"createInstance":      (*call).createInstance,
	"getInstance":         (*call).getInstance,
	"destroyInstance":     (*call).destroyInstance,
	"startInstance":       (*call).startInstance,
	"stopInstance":        (*call).stopInstance,
	"rebootInstance":      (*call).rebootInstance,
	"rebuildInstance":     (*call).rebuildInstance,
	"recreateInstance":    (*call).recreateInstance,
	"keepInstance":        keepInstance,
	"watchInstance":       (*call).watchInstance,
	"watchEvents":         (*call).watchEvents,
	"getInstanceLog":      (*call).getInstanceLog,
	"attachConsole":       (*call).attachConsole,
	"forwardPort":         (*call).forwardPort,
	"explainRequest":      (*call).explainRequest,
	"listKeys":            listKeys,
	"addKey":              addKey,
	"removeKey":           removeKey,
	"listProjects":        listProjects,
	"createProject":       createProject,
	"getProject":          getProject,
	"changeProject":       changeProject,
	"removeProject":       removeProject,
	"setMembers":          setMembers,
	"listMappings":        listMappings,
	"setMapping":          setMapping,
	"removeMapping":       removeMapping,
	"getQuota":            getQuota,
	"setQuota":            setQuota,
	"checkQuotas":         checkQuotas,
	"recountQuota":        recountQuota,
	"getUsage":            getUsage,
	"listUsage":           listUsage,
	"getDefaultQuota":     getDefaultQuota,
	"setDefaultQuota":     setDefaultQuota,
	"listTokens":          listTokens,
	"createToken":         createToken,
	"revokeToken":         revokeToken,
	"listActions":         listActions,
	"listHosts":           listHosts,
	"getHost":             getHost,
	"drainHost":           drainHost,
	"enableHost":          enableHost,
	"acceptHost":          acceptHost,
	"forgetHost":          forgetHost,
	"emptyHost":           emptyHost,
	"removeMember":        removeMember,
	"listUsages":          listUsages,
	"getInventory":        getInventory,
	"getHostCapabilities": getHostCapabilities,
	"listResourceTypes":   listResourceTypes,
	"listCapabilities":    listCapabilities,
	"addCapability":       addCapability,
	"removeCapability":    removeCapability,
	"listUsers":           listUsers,
	"auditCloud":          auditCloud,
	"repairCloud":         repairCloud,
	"listInvitations":     listInvitations,
	"createInvitation":    createInvitation,
	"revokeInvitation":    revokeInvitation,
	"listAggregates":      listAggregates,
	"createAggregate":     createAggregate,
	"getAggregate":        getAggregate,
	"changeAggregate":     changeAggregate,
	"removeAggregate":     removeAggregate,
	"listDistances":       listDistances,
	"getDistance":         getDistance,
	"setDistance":         setDistance,
	"removeDistance":      removeDistance,
	"listPolicies":        listPolicies,
	"checkPolicy":         checkPolicy,
	"getPolicy":           getPolicy,
	"setPolicy":           setPolicy,
	"removePolicy":        removePolicy,
	"getStanding":         getStanding,
	"getCrushMap":         getCrushMap,
	"listObjects":         listObjects,
	"getObject":           getObject,
	"changeObject":        changeObject,
	"getProperty":         getProperty,
	"setProperty":         setProperty,
	"removeProperty":      removeProperty,
	"addTag":              addTag,
	"removeTag":           removeTag,
	"getDefinition":       getDefinition,
	"setDefinition":       setDefinition,
	"removeDefinition":    removeDefinition,
	"checkDefinition":     checkDefinition,
	"listImages":          listImages,
	"pullImage":           pullImage,
	"listHostImages":      listHostImages,
	"removeHostImages":    removeHostImages,
	"listClaims":          listClaims,
	"createClaim":         createClaim,
	"getClaim":            getClaim,
	"useClaim":            useClaim,
	"releaseClaim":        releaseClaim,
	"listPartitions":      listPartitions,
	"getPartition":        getPartition,
	"removePartition":     removePartition,
	"getCard":             getCard,
	"addPeer":             addPeer,
	"removePeer":          removePeer,
	"listSigners":         listSigners,
	"retireSigner":        retireSigner,
	"listRows":            listRows,
	"exportPartition":     exportPartition,
	"importPartition":     importPartition,
}

// answer writes a document as JSON.
func (c *call) answer(status int, document any) error {
	httpapi.Answer(c.w, status, document)
	return nil
}

func getDocument(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(api.Document()) // ignore clients that disconnected
	return nil
}

func getRoot(c *call) error {
	return c.answer(http.StatusOK, api.Cloud{Version: c.Version, Document: api.Hash(), Login: c.Login})
}

func whoami(c *call) error { return c.answer(http.StatusOK, c.caller) }
