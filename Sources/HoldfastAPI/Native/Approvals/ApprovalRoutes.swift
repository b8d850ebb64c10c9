import HTTPServer

extension NativeProtocol {
    /// The routes of changes that wait for the approval of a second person.
    static func approvals(_ loop: LoopServices) -> [APIRoute] {
        let proposal = ProposalEndpoints(loop)
        return [
            APIRoute(.get, "/v1/proposals", scope: .token(.admin), readsQuery: true, proposal.list),
            APIRoute(.get, "/v1/proposals/{id}", scope: .token(.admin), proposal.get),
            APIRoute(.post, "/v1/proposals/{id}/approve", scope: .token(.admin), proposal.approve)
                .withNewestDefinitions,
            APIRoute(.post, "/v1/proposals/{id}/reject", scope: .token(.admin), proposal.reject),
        ]
    }
}
