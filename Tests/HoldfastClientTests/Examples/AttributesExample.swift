import Foundation
import HoldfastClient
import Testing

// The code of the article Attributes; ArticleTests compares the two.

struct AttributesExample {
    @Test func `Attributes are updated, deleted, read and observed`() async throws {
        let stub = try Client()
        let client = stub.client
        try await client.initialize(user: HoldfastUser(id: "ada"))
        let birthday = Date(timeIntervalSince1970: 0)
        let dictionary: [String: Any] = ["hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": Date()]

        let attributes = AttributeService(client: client)
        try attributes.update(attributes: [
            "hobby": "movies", "age": 40, "getsCatalogue": true, "lastUpdate": .timestamp(Date()),
        ])
        try attributes.delete(attributes: ["hobby", "getsCatalogue"])

        try attributes.update(attributes: dictionary)

        try attributes.update(attributes: [
            "country": .country("DE"), "birthday": .date(birthday), "wakes_at": .time(hour: 7, minute: 30),
            "topics": ["sports", "music"],
        ])

        print(attributes.attributes())
        #expect(attributes.attributes()["wakes_at"] == "07:30")

        let observer = attributes.addObserver { outcome in
            switch (outcome.operation, outcome.result) {
            case (.update, .success), (.delete, .success): print("stored: \(outcome.names)")
            case (.update, .failure(let reason)): print("not updated: \(reason)")
            case (.delete, .failure(let reason)): print("not deleted: \(reason)")
            case (_, .postponed(let error)): print("sent again: \(error)")
            }
        }
        try await client.flush()
        observer.cancel()
        #expect(client.waitingEvents == 0)

        attributes.reset()
        client.destroy()
    }
}
