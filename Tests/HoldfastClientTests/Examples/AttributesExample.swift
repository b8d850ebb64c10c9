import HoldfastClient
import Testing

/// What the article Attributes shows; ArticleTests holds one to the other.
struct AttributesExample {
    @Test func `Attributes are updated, removed, and followed`() async throws {
        let stub = try Client()
        let client = stub.client
        try await client.initialize(user: HoldfastUser(id: "ada"))

        let attributes = AttributeService(client: client)
        attributes.update(attributes: ["country": "de", "age": 30, "is_member": true])
        attributes.delete(attributes: ["age"])

        let telling = Task { await tellRefusals(of: attributes) }
        try await client.flush()
        #expect(client.waitingEvents == 0)
        telling.cancel()
        await telling.value
        client.destroy()
    }

    private func tellRefusals(of attributes: AttributeService) async {
        for await notice in attributes.outcomes() {
            if case .refused(let reason) = notice.outcome { print("refused: \(reason)") }
            break
        }
    }
}
