import Bucketing
import JSON
import Testing

@Suite struct BucketerTests {
    @Test func `Hashes equal those of the reference SDK`() throws {
        let lines = try Vectors.lines("hashes.jsonl")
        #expect(lines.count > 2_000)
        for line in lines {
            let result = Bucketer.bucket(
                bucketingID: Identifier(try line.string("bucketingId")),
                parentID: Identifier(try line.string("parentId")), trafficAllocation: TrafficAllocation(ranges: [])
            )
            #expect(line["hash"]?.integer == Int64(result.hash))
            #expect(line["bucketValue"]?.integer == Int64(result.bucketValue))
            #expect(result.entityID == nil)
        }
    }

    @Test(arguments: [
        ("ppid1", "1886780721", 5254), ("ppid2", "1886780721", 4299), ("ppid3", "1886780721", 5439),
        ("ppid2", "1886780722", 2434),
    ])
    func `Bucket values equal published ones`(bucketingID: String, parentID: String, value: Int) {
        let hash = Bucketer.hash(bucketingID: Identifier(bucketingID), parentID: Identifier(parentID))
        #expect(Bucketer.bucketValue(ofHash: hash) == value)
    }

    @Test func `Bucket values are below 10,000`() {
        #expect(Bucketer.bucketValue(ofHash: 0) == 0)
        #expect(Bucketer.bucketValue(ofHash: .max) == 9_999)
    }

    @Test func `The first range that ends beyond a bucket value owns it`() {
        let allocation = TrafficAllocation(ranges: [
            .init(entityID: "a", end: 100), .init(entityID: "", end: 200), .init(entityID: "b", end: 150),
            .init(entityID: "c", end: 300),
        ])
        #expect(allocation.entity(at: 0) == "a")
        #expect(allocation.entity(at: 99) == "a")
        #expect(allocation.entity(at: 100) == nil)
        #expect(allocation.entity(at: 199) == nil)
        #expect(allocation.entity(at: 200) == "c")
        #expect(allocation.entity(at: 300) == nil)
    }
}
