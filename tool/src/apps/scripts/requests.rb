# Threads answer requests: each reads a document, writes a page of many strings, and keeps some of it.
require "digest/sha2"
require "json"

THREADS = 5
KEPT = 600

def document(random)
  people = (0...120).map do |number|
    { "id" => number, "name" => "name-#{number}" * random.rand(1..6), "note" => "n" * random.rand(10..700) }
  end
  JSON.generate(people)
end

def answer(random)
  people = JSON.parse(document(random))
  people.each { |person| person["text"] = "t" * (random.rand < 0.95 ? random.rand(24..600) : random.rand(600..20_000)) }
  page = String.new
  people.sort_by { |person| person["name"] }.each do |person|
    person.each { |key, value| page << "#{key}=#{value.to_s[0, 200]}\n" }
  end
  [page[0, random.rand(100..4000)], people.first(3)]
end

requests = Integer(ARGV.fetch(0))
threads = (0...THREADS).map do |thread|
  Thread.new do
    random, kept, digest = Random.new(thread), {}, Digest::SHA256.new
    requests.times do
      page = answer(random)
      digest << page[0]
      kept[random.rand(KEPT)] = page
    end
    kept.each_value { |page, people| digest << page << people.to_s }
    digest.hexdigest
  end
end
puts Digest::SHA256.hexdigest(threads.map(&:value).join)
