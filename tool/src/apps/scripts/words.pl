# Counts words, and keeps the last lists of each length.
use strict;
my $rounds = shift;
my (%count, %lists);
my $state = 1;
for my $round (1 .. $rounds) {
    $state = ($state * 1103515245 + 12345) % 2147483648;
    my $word = sprintf("w%x", $state >> 16);
    $count{$word}++;
    my $list = $lists{length $word} //= [];
    push @$list, join(",", map { $_ * $round } 1 .. 3);
    splice(@$list, 0, 500) if @$list > 1000;
}
my $total = 0;
for my $word (sort keys %count) {
    $total = ($total * 31 + length($word) * $count{$word}) % 1000003;
}
print scalar(keys %count), " $total\n";
