/// Puts a user at a place between 0 and 9,999 that depends on nothing but two texts.
///
/// The rule is that of the reference SDK's `bucketer`.
public enum Bucketer {
    /// Bucket values are below this.
    public static let bucketCount = 10_000

    /// The hash of the concatenated texts, seed 1.
    public static func hash(bucketingID: Identifier, parentID: Identifier) -> UInt32 {
        var first = bucketingID.string
        var second = parentID.string
        return first.withUTF8 { first in
            second.withUTF8 { second in
                withUnsafeTemporaryAllocation(byteCount: first.count + second.count, alignment: 4) { joined in
                    joined.copyBytes(from: first)
                    UnsafeMutableRawBufferPointer(rebasing: joined[first.count...]).copyBytes(from: second)
                    return MurmurHash3.hash(UnsafeRawBufferPointer(joined), seed: 1)
                }
            }
        }
    }

    /// The bucket value of a hash, computed in double precision as the reference does.
    public static func bucketValue(ofHash hash: UInt32) -> Int {
        Int(Double(hash) / 4_294_967_296 * Double(bucketCount))
    }

    /// The place of a user below an experiment or group, and whom it belongs to.
    ///
    /// - Parameter parentID: the id of the experiment, or of the group to find the experiment.
    public static func bucket(
        bucketingID: Identifier, parentID: Identifier, trafficAllocation: TrafficAllocation
    ) -> BucketingResult {
        let hash = hash(bucketingID: bucketingID, parentID: parentID)
        let value = bucketValue(ofHash: hash)
        return BucketingResult(hash: hash, bucketValue: value, entityID: trafficAllocation.entity(at: value))
    }
}
