# A shop that never forgets an order, although it means to: the program of the guide "Perl programs".
# perl orders.pl [ORDERS]
use strict;
use warnings;

package Shop {
    sub new { bless { paid => 0, names => {} }, shift }

    sub take {
        my ($self, $number) = @_;
        my $order = { number => $number, lines => [map { "article $_ of order $number" } 1 .. 20] };
        $order->{when_paid} = sub { $self->pay($order) };    # the order holds what holds the order
        return $order;
    }

    sub pay {
        my ($self, $order) = @_;
        $self->{paid}++;
        return $self->{names}{ $order->{number} % 50 } //= $self->name($order);
    }

    sub name { my ($self, $order) = @_; return join ', ', @{ $order->{lines} } }
}

my $shop = Shop->new;
for my $number (1 .. shift // 1000) {
    my $order = $shop->take($number);
    $order->{when_paid}->();
}
print "$shop->{paid} orders paid\n";
